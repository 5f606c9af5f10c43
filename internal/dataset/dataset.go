package dataset

import "github.com/steadyrl/steady/internal/judge"

// Split names a part of a data set.
type Split string

// The splits.
const (
	Train Split = "train"
	Dev   Split = "dev"
)

// Splits lists the splits in the order in which they are written.
func Splits() []Split { return []Split{Train, Dev} }

// Problem is what a rollout may see of a problem. Its hidden tests are apart (Set.Tests).
type Problem struct {
	// ID is the shard's name without .parquet, a slash and the row's number in the shard.
	ID string `json:"id"`
	// Index is the position in the split.
	Index int `json:"index"`
	// Statement is the text of the user's message.
	Statement string `json:"statement"`
	// Samples are the public examples found in the statement; may be empty.
	Samples []judge.Test `json:"samples,omitempty"`
	// Title, Source, URL, Platform, Difficulty, TimeLimit, MemoryLimit and Date are as in the row, empty for null.
	// Platform is the normalised identity (PlatformID), for example codeforces:1492+B.
	Title       string   `json:"title,omitempty"`
	Source      string   `json:"source,omitempty"`
	URL         string   `json:"url,omitempty"`
	Platform    string   `json:"platform,omitempty"`
	Difficulty  string   `json:"difficulty,omitempty"`
	TimeLimit   string   `json:"time_limit,omitempty"`
	MemoryLimit string   `json:"memory_limit,omitempty"`
	Date        string   `json:"date,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	// HiddenTests is the number of saved tests.
	HiddenTests int `json:"hidden_tests"`
}

// Decision says what became of one input row.
type Decision struct {
	Shard  string `json:"shard"`
	Row    int64  `json:"row"` // from 0
	ID     string `json:"id"`
	Source string `json:"source,omitempty"`
	// Keep is true if the problem is in a split.
	Keep bool `json:"keep"`
	// Split is train or dev for a kept problem.
	Split Split `json:"split,omitempty"`
	// Reason is Kept or the first rule that dropped the row.
	Reason Reason `json:"reason"`
	// Evidence is what the rule saw, for a person. For a kept row it names the reference that passed.
	Evidence string `json:"evidence,omitempty"`
}

// RulesVersion changes with every change of a rule that can change a decision.
const RulesVersion = 3

// Reason is a code of a rule.
type Reason string

// The reasons. A row has the reason of the first rule, in the order of Rules, that drops it.
const (
	Kept                Reason = "kept"
	CellTooLarge        Reason = "cell_too_large"      // a cell is longer than ShardOptions.MaxCell
	BadStatement        Reason = "bad_statement"       // null, blank, not UTF-8, or with NUL
	CallBased           Reason = "call_based"          // fn_name or starter code: not standard input and output
	BadTests            Reason = "bad_tests"           // input_output is null or not of the agreed form
	UnequalTests        Reason = "unequal_tests"       // as many inputs as outputs are needed
	NoTests             Reason = "no_tests"            // fewer than ShardOptions.MinTests
	Image               Reason = "image"               // needs a picture
	SpecialJudge        Reason = "special_judge"       // more than one output is probably right
	BadSolutions        Reason = "bad_solutions"       // not a JSON list of strings
	NoSolution          Reason = "no_solution"         // null, empty list, or only blank ones
	SolutionShown       Reason = "solution_shown"      // a reference program stands in the statement
	PromptTooLong       Reason = "prompt_too_long"     // more than ShardOptions.MaxPrompt tokens
	ReferenceFailed     Reason = "reference_failed"    // none of the tried solutions passes all tests
	ReferencesDisagree  Reason = "references_disagree" // one passes; another runs cleanly and agrees on some tests only
	Excluded            Reason = "excluded"            // in the list of excluded problems
	DuplicateText       Reason = "duplicate_text"      // same statement as an earlier good row
	DuplicateURL        Reason = "duplicate_url"       // same address as an earlier good row
	DuplicatePlatformID Reason = "duplicate_platform"  // same platform identity as an earlier good row
	NotSelected         Reason = "not_selected"        // good, but the splits are full
)

// Rules lists the reasons for dropping a row in the order in which the rules are applied.
func Rules() []Reason {
	return []Reason{
		CellTooLarge, BadStatement, CallBased, BadTests, UnequalTests, NoTests, Image, SpecialJudge, BadSolutions, NoSolution,
		SolutionShown, PromptTooLong, ReferenceFailed, ReferencesDisagree, Excluded, DuplicateText, DuplicateURL, DuplicatePlatformID, NotSelected,
	}
}
