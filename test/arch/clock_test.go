package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// timeOfDay are the methods that make a point in time of the day's clock: clocks of two processes differ, and each can be set. Durations
// between two readings of time.Now in one process need none of them.
var timeOfDay = []string{"UTC", "Local", "Unix", "UnixMilli", "UnixMicro", "UnixNano", "AsTime", "ModTime"}

// timeReaders are the files and folders that may call them, and why a clock that is set does no harm there.
var timeReaders = map[string]string{
	"activities/lineage.go":  "the record says for people when the lineage was opened",
	"activities/control.go":  "the record says for people when the run began",
	"activities/notes.go":    "events have a time for people; their names only have to differ",
	"activities/study.go":    "the record says for people when the study began",
	"internal/obs/logger.go": "log lines",

	"cmd/steady/environment.go":                     "whether a certificate is valid now; a deadline of a connection",
	"internal/artifact/bucket/dirs.go":              "the age of files that nobody names and of local copies; a wrong yes costs another upload or download",
	"internal/artifact/artifacttest/suite.go":       "whether a store tells the time of an object at all",
	"internal/artifact/bucket/buckettest/server.go": "times that a server of tests tells",

	"internal/live/":            "texts for people; times of files tell replaced ones apart, whatever the clock says",
	"internal/report/number.go": "texts for people",
	"internal/scalars/":         "the recorded start of a run, for the axis of curves",
	"internal/ui/display.go":    "lines for people",
	"workers/inspect.go":        "says for people how old a heartbeat is",
	"workers/standby.go":        "whether another host's poll is fresh; a wrong yes costs the offer to standbys, a wrong no a replay",
	"workflows/":                "workflow time, which does not go back within a run; watch mends what an older run of the chain noted",
	"scripts/":                  "tools that read histories",
}

// readers returns the calls of such methods in a file.
func readers(t *testing.T, name, text string) []token.Position {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []token.Position
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(timeOfDay, s.Sel.Name) {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" { // the function time.Unix
			return true
		}
		found = append(found, set.Position(s.Sel.Pos()))
		return true
	})
	return found
}

// What a process decides must not depend on the time of day. Who needs it all the same is listed with a reason.
func TestClock_theTimeOfDayIsReadWhereItDoesNoHarm(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, at := range readers(t, name, read(t, name)) {
			reason := ""
			for prefix, why := range timeReaders {
				if strings.HasPrefix(name, prefix) {
					reason, used[prefix] = why, true
				}
			}
			if reason == "" {
				t.Errorf("%s reads the time of day; measure durations with time.Since, or list the file here with the reason why a clock that is set does no harm", at)
			}
		}
	}
	for prefix := range timeReaders {
		if !used[prefix] {
			t.Errorf("%s is listed and does not read the time of day", prefix)
		}
	}
}

// A worker compares the bound of all attempts together, from their schedule to their close, with its own time of day: one whose clock is ahead
// of the server's gives every attempt up before it begins.
func TestClock_noActivityIsBoundedFromScheduleToClose(t *testing.T) {
	t.Parallel()
	for _, name := range files(t) {
		if strings.HasPrefix(name, "workflows/") && strings.HasSuffix(name, ".go") && strings.Contains(read(t, name), "ScheduleToCloseTimeout") {
			t.Errorf("%s sets ScheduleToCloseTimeout; see bounded in workflows/options.go", name)
		}
	}
}

func TestClock_aReaderIsFound(t *testing.T) {
	t.Parallel()
	text := "package x\nfunc f(a fileInfo) {\n_ = time.Now().UTC()\n_ = a.ModTime()\n_ = time.Since(p.AsTime())\n_ = time.Unix(1, 0)\n_ = time.Since(began)\n_ = x.UTC\n}\n"
	var lines []int
	for _, at := range readers(t, "x.go", text) {
		lines = append(lines, at.Line)
	}
	if want := []int{3, 4, 5}; !slices.Equal(lines, want) {
		t.Errorf("found in lines %v, want %v", lines, want)
	}
}
