package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// group is a set of rows that are one problem: linked, directly or through other rows, by equal keys.
type group struct {
	rows []int // ascending
	rank string
}

// groups links the rows that are still kept. The result is in the order of first rows.
func groups(rows []Checked, keys [][]identity) []*group {
	parent := make([]int, len(rows))
	for i := range parent {
		parent[i] = i
	}
	root := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	first := map[string]int{}
	for i, ids := range keys {
		for _, id := range ids {
			j, ok := first[id.key]
			if !ok {
				first[id.key] = i
				continue
			}
			// The smaller row is the root, so a root is the first row of its group.
			a, b := root(i), root(j)
			parent[max(a, b)] = min(a, b)
		}
	}
	var out []*group
	byRoot := map[int]*group{}
	for i := range rows {
		if rows[i].Decision.Reason != Kept {
			continue
		}
		g := byRoot[root(i)]
		if g == nil {
			g = &group{}
			byRoot[root(i)] = g
			out = append(out, g)
		}
		g.rows = append(g.rows, i)
	}
	return out
}

// identify applies the rules about identity: a group with an excluded member is excluded whole, of any other the
// first row stays. It returns the groups that remain, one row each.
func identify(rows []Checked, excluded map[string]bool) []*group {
	keys := make([][]identity, len(rows))
	owners := map[string][]int{}
	for i, r := range rows {
		if r.Decision.Reason != Kept {
			continue
		}
		keys[i] = identities(r.Problem)
		for _, id := range keys[i] {
			owners[id.key] = append(owners[id.key], i)
		}
	}
	var good []*group
	for _, g := range groups(rows, keys) {
		if key, at := hit(g, keys, excluded); key != "" {
			for _, i := range g.rows {
				d := &rows[i].Decision
				d.Reason, d.Evidence = Excluded, clip(key)
				if i != at {
					d.Evidence = fmt.Sprintf("same problem as %s: %s", rows[at].Decision.ID, clip(key))
				}
			}
			continue
		}
		for _, i := range g.rows[1:] {
			d := &rows[i].Decision
			d.Reason, d.Evidence = linked(i, keys[i], owners), "first is "+rows[g.rows[0]].Decision.ID
		}
		good = append(good, g)
	}
	return good
}

// hit returns the first excluded key of a group and the row that has it.
func hit(g *group, keys [][]identity, excluded map[string]bool) (key string, row int) {
	for _, i := range g.rows {
		for _, id := range keys[i] {
			if excluded[id.key] {
				return id.key, i
			}
		}
	}
	return "", 0
}

// linked names the key by which a row belongs to its group: one shared with an earlier row if there is one.
func linked(row int, keys []identity, owners map[string][]int) Reason {
	for _, id := range keys {
		if owners[id.key][0] < row {
			return id.reason
		}
	}
	for _, id := range keys {
		if len(owners[id.key]) > 1 {
			return id.reason
		}
	}
	return DuplicateText // not reached: a later row of a group shares a key with another
}

// assign gives the good problems to the splits; the others become NotSelected.
//
// Problems are ordered by a hash of seed and text: dev takes the first, train the last. So as long as both splits are
// full, rows added elsewhere can push a problem out of a split but never from one split into the other. With too few
// problems both are filled in the ratio asked for.
func assign(rows []Checked, good []*group, o FinishOptions) (dev, train []int) {
	for _, g := range good {
		for _, i := range g.rows {
			sum := sha256.Sum256(fmt.Appendf(nil, "steady-split-1 %d %s", o.Seed, TextKey(rows[i].Problem.Statement)))
			// The smallest of a group does not depend on which copy came first.
			if r := hex.EncodeToString(sum[:]); g.rank == "" || r < g.rank {
				g.rank = r
			}
		}
	}
	good = slices.Clone(good)
	slices.SortFunc(good, func(a, b *group) int { return strings.Compare(a.rank, b.rank) })
	nDev, nTrain := o.Dev, o.Train
	if want := nDev + nTrain; len(good) < want {
		nDev = len(good) * o.Dev / want
		nTrain = len(good) - nDev
	}
	for k, g := range good {
		i := g.rows[0]
		d := &rows[i].Decision
		switch {
		case k < nDev:
			d.Split, d.Keep = Dev, true
			dev = append(dev, i)
		case k >= len(good)-nTrain:
			d.Split, d.Keep = Train, true
			train = append(train, i)
		default:
			d.Reason, d.Evidence = NotSelected, "the splits are full"
		}
	}
	return dev, train
}
