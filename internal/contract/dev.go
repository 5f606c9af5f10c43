package contract

import (
	"slices"
)

// The table of validations grows with the run, messages do not: what is sent and kept is a selection of MergeDev. The store has all rows, and
// the report shows them.
const (
	MaxDevRows  = 40 // of TrainRun: its query, its result and the details that people see
	LoopDevRows = 8  // of the state of the loop, and of what it has not told TrainRun yet
)

// MergeDev returns table with rows added; both are ordered by version. A row of a version that is there replaces it, so that a message that
// comes twice changes nothing, and one that is older than the newest of the table and not in it was left out before and stays out.
// Of more than most rows it keeps the first, the best (by Acc, the earliest of equals) and the newest
// quarter; the others thin out evenly, those with the nearest neighbours first. table and rows are not changed.
func MergeDev(table, rows []DevRow, most int) []DevRow {
	out := slices.Clone(table)
	for _, r := range rows {
		i, found := slices.BinarySearchFunc(out, r.Version, func(d DevRow, version int) int { return d.Version - version })
		switch {
		case found:
			out[i] = r
		case i == len(out):
			out = append(out, r)
		}
		out = thin(out, most)
	}
	return thin(out, most)
}

// thin leaves out the rows that are missed least until there are at most most, or three.
func thin(rows []DevRow, most int) []DevRow {
	for len(rows) > max(most, 3) {
		i := thinnest(rows, most)
		rows = slices.Delete(rows, i, i+1)
	}
	return rows
}

// thinnest returns the place of the row that is missed least.
func thinnest(rows []DevRow, most int) int {
	best := BestDev(rows)
	at, gap := -1, 0
	for i := 1; i < len(rows)-max(most/4, 1); i++ {
		if g := rows[i+1].Version - rows[i-1].Version; i != best && (at < 0 || g < gap) {
			at, gap = i, g
		}
	}
	if at < 0 {
		at = 1
		if best == 1 {
			at = 2
		}
	}
	return at
}

// BestDev returns the place of the row with the highest accuracy, the earliest of equals; -1 without any.
func BestDev(rows []DevRow) int {
	best := -1
	for i, r := range rows {
		if best < 0 || r.Acc > rows[best].Acc {
			best = i
		}
	}
	return best
}
