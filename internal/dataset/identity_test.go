package dataset

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// linkedRow has a statement of its own unless text is one that other rows have, and an address.
func linkedRow(text, url, solution string) Row {
	r := plain(text)
	r.Solutions = ptr(`["` + solution + `"]`)
	if url != "" {
		r.URL = ptr(url)
	}
	return r
}

// Duplicates are found by every key inside a shard and across shards, and the later one goes; but a copy that is no good
// keeps nobody out, wherever it stands.
func TestFinish_duplicatesAcrossShards(t *testing.T) {
	t.Parallel()
	const (
		text = "A statement that is long enough to be a key of its own, number "
		cf   = "https://codeforces.com/problemset/problem/%d/A"
		cf2  = "https://codeforces.com/contest/%d/problem/a"
	)
	kinds := []struct {
		name        string
		first, copy func(n int) Row
		want        Reason
	}{
		{
			"text", func(n int) Row { return linkedRow(fmt.Sprint(text, n), "", "pass") },
			func(n int) Row { return linkedRow(strings.ToUpper(fmt.Sprint(text, n))+" !", "", "pass") }, DuplicateText,
		},
		{
			"address", func(n int) Row {
				return linkedRow(fmt.Sprint(text, "u", n), fmt.Sprintf("https://example.org/%d", n), "pass")
			},
			func(n int) Row {
				return linkedRow(fmt.Sprint(text, "v", n), fmt.Sprintf("http://www.EXAMPLE.org/%d/?lang=en#top", n), "pass")
			}, DuplicateURL,
		},
		{
			"platform", func(n int) Row { return linkedRow(fmt.Sprint(text, "w", n), fmt.Sprintf(cf, n), "pass") },
			func(n int) Row { return linkedRow(fmt.Sprint(text, "x", n), fmt.Sprintf(cf2, n), "pass") }, DuplicatePlatformID,
		},
	}
	var a, b []Row
	var wantA, wantB []Reason
	for i, k := range kinds {
		n := 100 * (i + 1)
		broken := func(r Row, change func(*Row)) Row {
			change(&r)
			return r
		}
		fails := func(r *Row) { r.Solutions = ptr(`["wrong"]`) }
		drawn := func(r *Row) { r.PictureNum = ptr("1") }
		// Copies inside a shard and across; bad copies before and behind.
		a = append(a, k.first(n), k.copy(n), broken(k.first(n+1), fails), k.copy(n+1), k.first(n+2), broken(k.first(n+3), drawn))
		wantA = append(wantA, Kept, k.want, ReferenceFailed, Kept, Kept, Image)
		again, key := k.copy(n), k.want
		if k.want != DuplicateText {
			again.Question = ptr(*again.Question + " in other words")
			key = DuplicateURL // of the copy in the first shard, which has the same address
		}
		b = append(b, again, k.first(n+1), broken(k.copy(n+2), fails), k.first(n+3))
		wantB = append(wantB, key, k.want, ReferenceFailed, Kept)
	}
	_, m, ds := finish(t, FinishOptions{Train: 200, Dev: 20}, prepare(t, a, options()), prepare(t, b, options()))
	var got []Reason
	for _, d := range ds {
		got = append(got, d.Reason)
	}
	if diff := cmp.Diff(append(wantA, wantB...), got); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if m.Good != 4*len(kinds) {
		t.Errorf("%d good rows, want %d", m.Good, 4*len(kinds))
	}
}

// Of random rows with few texts and addresses: the splits are disjoint (finish checks that), every good row that is gone names a row
// with which it is linked, and rows that are no good change nothing for the others.
func TestFinish_randomLinks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		s := rand.New(rand.NewPCG(seed, 1))
		row := func(solution string) Row {
			url := ""
			if s.IntN(3) > 0 {
				url = fmt.Sprintf([]string{"https://codeforces.com/problemset/problem/%d/A", "https://codeforces.com/contest/%d/problem/A", "https://e.org/%d"}[s.IntN(3)], s.IntN(40))
			}
			return linkedRow(fmt.Sprintf("One of the statements that are long enough for a key, number %d", s.IntN(60)), url, solution)
		}
		var clean, dirty []Row
		var where []int // of a clean row among the dirty ones
		for range 80 {
			for s.IntN(3) == 0 {
				dirty = append(dirty, row("wrong"))
			}
			r := row("pass")
			where = append(where, len(dirty))
			clean, dirty = append(clean, r), append(dirty, r)
		}
		o := FinishOptions{Seed: seed, Train: 25, Dev: 5}
		_, m, ds := finish(t, o, prepare(t, clean, options()))
		_, mDirty, dsDirty := finish(t, o, prepare(t, dirty, options()))
		if m.Good != mDirty.Good || m.Good == 0 || m.Good == 80 {
			t.Errorf("seed %d: %d good rows, %d with bad ones between", seed, m.Good, mDirty.Good)
		}
		good := 0
		for i, d := range ds {
			other := dsDirty[where[i]]
			if d.Reason != other.Reason || d.Split != other.Split {
				t.Errorf("seed %d, row %d: %s %s, with bad rows between %s %s", seed, i, d.Reason, d.Split, other.Reason, other.Split)
			}
			if d.Reason == Kept || d.Reason == NotSelected {
				good++
			}
		}
		if good != m.Good {
			t.Errorf("seed %d: %d rows are kept or not selected, %d are good", seed, good, m.Good)
		}
	}
}
