package devserver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func sqliteLine(text string) string {
	return `{"level":"ERROR","msg":"Operation failed with internal error.","error":"` + text + `","error-type":"sqlite.Error","operation":"ReadHistoryBranch"}` + "\n"
}

// What keeps the server from its database is found, whatever stands around it; what passes by itself is not.
func TestDatabaseError_tellsWhatDoesNotPass(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"database disk image is malformed (11)":                 true,
		"database disk image is malformed: in index (779)":      true, // 11 with detail
		"database or disk is full (13)":                         true,
		"disk I/O error (10)":                                   true,
		"disk I/O error: write (778)":                           true,
		"file is not a database (26)":                           true,
		"attempt to write a readonly database (8)":              true,
		"unable to open database file: no such file (14)":       true,
		"database is locked (5) (SQLITE_BUSY)":                  false,
		"database is locked (5)":                                false,
		"constraint failed: UNIQUE constraint failed: a (1555)": false,
		"no number":                        false,
		"too large (99999999999999999999)": false,
	} {
		if got := databaseError([]byte(sqliteLine(text))); (got == text) != want {
			t.Errorf("%s: got %q, want it told: %v", text, got, want)
		}
	}
	for _, line := range []string{
		"", "sqlite malformed (11)\n", `{"error":"malformed (11)"}`,
		`{"error":"sqlite malformed (11)","error-type":"serviceerror.Internal"}`, `{"error":11,"error-type":"sqlite.Error"}`,
	} {
		if got := databaseError([]byte(line)); got != "" {
			t.Errorf("%s: got %q, want nothing", line, got)
		}
	}
}

// A log that grows in any pieces is read once, line by line; the past is not read at all.
func TestTroubles_readsWhatIsNewOnce(t *testing.T) {
	t.Parallel()
	damaged, full := "database disk image is malformed (11)", "database or disk is full (13)"
	news := "no JSON\n" + sqliteLine(damaged) + sqliteLine("database is locked (5)") + sqliteLine(full) + sqliteLine(damaged)
	for _, piece := range []int{1, 7, 100, 250, len(news)} {
		file := filepath.Join(t.TempDir(), "temporal.log")
		if err := os.WriteFile(file, []byte(sqliteLine("file is not a database (26)")), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		look, got := sinceNow(file), []string(nil)
		for p := range slices.Chunk([]byte(news), piece) {
			if _, err := f.Write(p); err != nil {
				t.Fatal(err)
			}
			got = append(got, look.next()...)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if want := []string{damaged, full}; !slices.Equal(got, want) {
			t.Errorf("pieces of %d bytes: got %q, want %q", piece, got, want)
		}
	}
	if got := sinceNow(filepath.Join(t.TempDir(), "none")).next(); got != nil {
		t.Errorf("no log: got %q, want nothing", got)
	}
	file := filepath.Join(t.TempDir(), "endless")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look := sinceNow(file)
	if err := os.WriteFile(file, []byte(strings.Repeat("x", most)+"\n"+sqliteLine(full)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := append(look.next(), look.next()...); !slices.Equal(got, []string{full}) {
		t.Errorf("after an endless line: got %q, want %q", got, full)
	}
}

// Of a server that panicked, the reason is told and not the end of the trace; an old panic is no reason.
func TestLogTail_saysWhy(t *testing.T) {
	t.Parallel()
	trace := "\ngoroutine 1 [running]:\n" + strings.Repeat("main.f(0x1)\n\t/src/f.go:1 +0x2a9\n", 30)
	for log, want := range map[string]string{
		"{}\npanic: port 7 is taken\n" + trace:             "panic: port 7 is taken",
		"{}\nfatal error: out of memory\n" + trace:         "fatal error: out of memory",
		"panic: of yesterday\n" + trace + "{}\nerror: x\n": "{} / error: x",
		"a\nb\nc\nd\n": "b / c / d",
	} {
		file := filepath.Join(t.TempDir(), "temporal.log")
		if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Server{options: Options{LogFile: file}}
		if got := s.logTail(); !strings.HasSuffix(got, want) || strings.Contains(got, "yesterday") {
			t.Errorf("%q: got %q, want %q", log, got, want)
		}
	}
}
