package dataset

import (
	"maps"
	"slices"
)

// Names of the files of a prepared data set.
const (
	ManifestFile  = "manifest.json"
	DecisionsFile = "decisions.parquet"
)

func splitFile(s Split) string { return string(s) + ".parquet" }

// Input names a shard that was read.
type Input struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	Rows   int    `json:"rows"`
}

// Manifest says how a data set came to be.
type Manifest struct {
	Format       int               `json:"format"` // 1
	RulesVersion int               `json:"rules_version"`
	Seed         uint64            `json:"seed"`
	Inputs       []Input           `json:"inputs"`
	Rows         int               `json:"rows"`
	Good         int               `json:"good"` // rows that pass all rules but the size of the split
	Train        int               `json:"train"`
	Dev          int               `json:"dev"`
	WantTrain    int               `json:"want_train"`
	WantDev      int               `json:"want_dev"`
	Reasons      []Count           `json:"reasons"`            // in the order of the rules, kept first
	Platforms    []Platform        `json:"platforms"`          // by the column source, sorted
	Exclusions   int               `json:"exclusions"`         // identities in the list of excluded problems
	Files        map[string]string `json:"files"`              // name to SHA-256
	Settings     map[string]string `json:"settings,omitempty"` // what else decided: limits, interpreter
	Seal         string            `json:"seal,omitempty"`     // SHA-256 of the file with an empty seal; only in the file
}

// Count is a number of rows.
type Count struct {
	Name string `json:"name"`
	Rows int    `json:"rows"`
}

// Platform counts the rows of a source.
type Platform struct {
	Name string `json:"name"` // empty for null
	Rows int    `json:"rows"`
	Kept int    `json:"kept"`
}

// FinishOptions configure the second half.
type FinishOptions struct {
	Seed       uint64
	Train, Dev int
	Inputs     []Input
	// Excluded are identities that must not appear (ReadExcluded).
	Excluded map[string]bool
	Settings map[string]string
}

// problemRow is a row of train.parquet and dev.parquet; hidden tests have columns of their own.
type problemRow struct {
	ID      string `parquet:"id"`
	Prompt  string `parquet:"prompt"`  // the statement
	Samples string `parquet:"samples"` // JSON of public examples
	Public  string `parquet:"public"`  // JSON of the rest of Problem
	Tests   string `parquet:"hidden_tests"`
}

// publicRow is what Open reads of a problemRow, testsRow what Set.Tests reads.
type publicRow struct {
	ID      string `parquet:"id"`
	Prompt  string `parquet:"prompt"`
	Samples string `parquet:"samples"`
	Public  string `parquet:"public"`
}

type testsRow struct {
	ID    string `parquet:"id"`
	Tests string `parquet:"hidden_tests"`
}

type decisionRow struct {
	Shard    string `parquet:"shard"`
	Row      int64  `parquet:"row"`
	ID       string `parquet:"id"`
	Source   string `parquet:"source"`
	Keep     bool   `parquet:"keep"`
	Split    string `parquet:"split"`
	Reason   string `parquet:"reason"`
	Evidence string `parquet:"evidence"`
}

func manifest(rows []Checked, o FinishOptions, good, train, dev int) Manifest {
	m := Manifest{
		Format: 1, RulesVersion: RulesVersion, Seed: o.Seed, Inputs: o.Inputs, Rows: len(rows), Good: good, Train: train, Dev: dev,
		WantTrain: o.Train, WantDev: o.Dev, Settings: o.Settings, Exclusions: len(o.Excluded),
	}
	reasons, platforms := map[Reason]int{}, map[string]Platform{}
	for _, r := range rows {
		reasons[r.Decision.Reason]++
		p := platforms[r.Decision.Source]
		p.Rows++
		if r.Decision.Keep {
			p.Kept++
		}
		platforms[r.Decision.Source] = p
	}
	for _, reason := range append([]Reason{Kept}, Rules()...) {
		m.Reasons = append(m.Reasons, Count{string(reason), reasons[reason]})
	}
	for _, name := range slices.Sorted(maps.Keys(platforms)) {
		p := platforms[name]
		p.Name = name
		m.Platforms = append(m.Platforms, p)
	}
	return m
}
