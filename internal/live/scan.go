package live

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// validName is what a name of a run or a lineage looks like.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Runs lists the names of the runs of a store, sorted: every folder below runs/ that could be one, also that of a run which has
// not written its record yet.
func Runs(ctx context.Context, c *Cache) ([]string, error) {
	entries, err := c.Entries(ctx, "runs")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && validName.MatchString(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// layoutOf finds a lineage of a run; the empty name means the newest. Errors: Invalid (no name), NotFound.
func layoutOf(ctx context.Context, c *Cache, run, lineage string) (record.Layout, error) {
	const op = "live"
	if !validName.MatchString(run) || lineage != "" && !validName.MatchString(lineage) {
		return record.Layout{}, fault.New(fault.Invalid, op, "%q is no name of a run, or %q none of a lineage", run, lineage).
			WithHint("follow the links from the list of runs")
	}
	n := 0
	for ; ; n++ {
		there, err := c.Exists(ctx, record.Layout{Run: run, Lineage: record.LineageName(n)}.LineageFile())
		if err != nil {
			return record.Layout{}, err
		}
		if !there {
			break
		}
	}
	switch {
	case n == 0:
		return record.Layout{}, fault.New(fault.NotFound, op, "there is no record of a run %q", run).
			WithHint("it has not started, or lies in another store")
	case lineage == "":
		return record.Layout{Run: run, Lineage: record.LineageName(n - 1)}, nil
	}
	for i := range n {
		if record.LineageName(i) == lineage {
			return record.Layout{Run: run, Lineage: lineage}, nil
		}
	}
	return record.Layout{}, fault.New(fault.NotFound, op, "run %s has no lineage %q", run, lineage).
		WithHint("it has %d, from %s on", n, record.FirstLineage)
}

// watched are the folders of a lineage whose files are written once: their names say everything.
var watched = []string{"batches", "results", "ledger", "validation", "events", "weights", "export"}

// view is what the folders of a lineage hold at one moment.
type view struct {
	stamp   string
	began   string // of the run's record; another one means another run of the same name
	numbers map[string][]int
	events  []string // names in the store
	named   []string // validations
	workers []string
	exports bool // the certificate is there
	ended   bool // the ledger is closed
	report  bool // the run has written its own, which is the last that it does
	changed time.Time
	results []time.Time // of the newest results, oldest first
}

// look lists the folders of a lineage: no file is opened.
func look(ctx context.Context, c *Cache, l record.Layout) (*view, error) {
	v := &view{numbers: map[string][]int{}}
	sum := sha256.New()
	add := func(dir string, e fs.DirEntry, deep bool) error {
		fmt.Fprintf(sum, "%s/%s\n", dir, e.Name())
		if !deep {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // it was replaced in this moment: the next look sees the new one
		}
		state := version(info)
		fmt.Fprintln(sum, state)
		if info.ModTime().After(v.changed) {
			v.changed = info.ModTime()
		}
		if e.Name() == "run.json" {
			v.began += state + " "
		}
		return nil
	}
	root := strings.TrimSuffix(l.Root(), "/")
	names := []string{"runs/" + l.Run, root, strings.TrimSuffix(l.Workers(), "/")}
	for _, dir := range watched {
		names = append(names, root+"/"+dir)
	}
	lists, err := c.folders(ctx, names)
	if err != nil {
		return nil, err
	}
	above := len(names) - len(watched)
	for i, dir := range names[:above] {
		for _, e := range lists[i] {
			if err := add(dir, e, !e.IsDir() && e.Name() != "report.html"); err != nil {
				return nil, err
			}
			v.report = v.report || dir == root && e.Name() == "report.html"
			if dir+"/" == l.Workers() {
				v.workers = append(v.workers, dir+"/"+e.Name())
			}
		}
	}
	for w, dir := range watched {
		entries := lists[above+w]
		for i, e := range entries {
			if e.IsDir() || !strings.HasSuffix(e.Name(), ".json") {
				continue
			}
			last := i == len(entries)-1 || dir == "results" && i >= len(entries)-recent
			if err := add(dir, e, last); err != nil {
				return nil, err
			}
			if dir == "results" && last {
				if info, err := e.Info(); err == nil {
					v.results = append(v.results, info.ModTime())
				}
			}
			v.sort(dir, root, e.Name())
		}
	}
	for _, list := range v.numbers {
		slices.Sort(list)
	}
	v.stamp = hex.EncodeToString(sum.Sum(nil))[:24]
	return v, nil
}

// version is a text that changes with an object.
func version(info fs.FileInfo) string {
	text := fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano())
	if bytes, ok := info.Sys().(string); ok { // a bucket's times are in seconds
		text += " " + bytes
	}
	return text
}

// recent is the number of steps from which the time of a step is taken.
const recent = 11

func (v *view) sort(dir, root, file string) {
	base := strings.TrimSuffix(file, ".json")
	switch {
	case dir == "events":
		v.events = append(v.events, root+"/events/"+file)
	case dir == "validation":
		v.named = append(v.named, base)
	case dir == "export" && base == "certificate":
		v.exports = true
	case dir == "ledger" && base == "end":
		v.ended = true
	default:
		if n, err := strconv.Atoi(base); err == nil {
			v.numbers[dir] = append(v.numbers[dir], n)
		}
	}
}

// newest returns the largest number of a folder, -1 without one.
func (v *view) newest(dir string) int {
	if list := v.numbers[dir]; len(list) > 0 {
		return list[len(list)-1]
	}
	return -1
}
