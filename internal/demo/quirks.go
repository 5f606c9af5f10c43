package demo

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/judge"
)

// quirk is a row that real shards hold, with the decision that the pipeline has to take.
type quirk struct {
	name string
	want dataset.Reason
	row  dataset.Row
}

const (
	readAll  = "a=list(map(int,input().split()))\n"
	addition = "Read two integers. Print their sum"
)

func text1(s string) *string { return &s }

func solutions(programs ...string) *string {
	b, err := json.Marshal(programs)
	if err != nil {
		panic(err) // strings always have an encoding
	}
	return text1(string(b))
}

// io is an input_output cell; inputs and outputs are JSON.
func io(inputs, outputs string) *string {
	return text1(`{"inputs": ` + inputs + `, "outputs": ` + outputs + `}`)
}

// quirky is a row with a statement and valid tests and solution for adding two numbers, to be spoilt.
func quirky(statement string) dataset.Row {
	return dataset.Row{
		Question: text1(statement), Solutions: solutions(readAll + "print(a[0]+a[1])\n"),
		InputOutput: io(`["2 3\n", "10 -4\n"]`, `["5\n", "6\n"]`), Difficulty: text1("EASY"), Source: text1("quirks"),
		Tags: text1("['Mathematics', \"Beginner's\"]"), RawTags: text1("['math']"), SkillTypes: text1("[]"), PictureNum: text1("0"), StarterCode: text1(""),
	}
}

// quirks are the rows that are not ordinary, in a fixed order.
func quirks() []quirk {
	return concat(kept(), unfit(), broken(), wrong(), copies())
}

func concat(lists ...[]quirk) []quirk {
	var out []quirk
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func with(name string, want dataset.Reason, statement string, change func(*dataset.Row)) quirk {
	r := quirky(statement)
	if change != nil {
		change(&r)
	}
	return quirk{name, want, r}
}

// kept are good rows in forms that a careless reader refuses.
func kept() []quirk {
	return []quirk{
		with("lists of lines", dataset.Kept, "Two lines hold an integer each. Print their sum.", func(r *dataset.Row) {
			r.InputOutput = io(`[["2", "3"], "10\n-4\n"]`, `[["5"], "6  \n\n"]`)
			r.Solutions = solutions("print(int(input())+int(input()))\n")
		}),
		with("a bare integer of 9131 digits", dataset.Kept, "Read a number. Print how many digits it has.", func(r *dataset.Row) {
			r.InputOutput = io("["+strings.Repeat("7", 9131)+", 42]", "[9131, 2]")
			r.Solutions = solutions("print(len(input()))\n")
		}),
		with("null columns", dataset.Kept, "Read two integers. Print the first without the second.", func(r *dataset.Row) {
			*r = dataset.Row{
				Question: r.Question, InputOutput: io(`["2 3\n", "10 -4\n"]`, `["-1\n", "14\n"]`),
				Solutions: solutions(readAll + "print(a[0]-a[1])\n"),
			}
		}),
		with("the first solution needs Python 2", dataset.Kept, "Read two integers. Print their product.", func(r *dataset.Row) {
			r.InputOutput = io(`["2 3\n", "10 -4\n"]`, `["6\n", "-40\n"]`)
			r.Solutions = solutions("a,b=map(int,raw_input().split())\nprint a*b\n", "a,b=map(int,input().split())\nif 1:\n\tprint(a*b)\n\t\n")
		}),
	}
}

// unfit are rows that a rollout cannot serve.
func unfit() []quirk {
	return []quirk{
		with("fn_name", dataset.CallBased, addition+" by a function.", func(r *dataset.Row) {
			r.InputOutput = text1(`{"fn_name": "add", "inputs": [[2, 3]], "outputs": [5]}`)
		}),
		with("starter code without fn_name", dataset.CallBased, addition+" in the given class.", func(r *dataset.Row) {
			r.StarterCode = text1("#User function Template for python3\n\nclass Solution:\n    def add(self, a, b):\n        pass\n")
			r.InputOutput = io(`["a = 2\nb = 3"]`, `["5"]`)
		}),
		with("a placeholder of a picture", dataset.Image, addition+" as shown. <image>", nil),
		with("picture_num", dataset.Image, addition+" after a look at the board.", func(r *dataset.Row) { r.PictureNum = text1("2") }),
		with("wording of a picture", dataset.Image, addition+". The figure below explains it.", nil),
		with("many outputs", dataset.SpecialJudge, "Read an integer. Print two integers with this sum. If there are multiple answers, print any of them.", nil),
		with("any order", dataset.SpecialJudge, "Read two integers. Print them in any order.", nil),
		with("letter case", dataset.SpecialJudge, "Read two integers. Print yes if they are equal. Print each letter in any case.", nil),
		with("tolerance", dataset.SpecialJudge, "Read two integers. Print their mean with an absolute or relative error of at most 0.01.", nil),
		with("too long", dataset.PromptTooLong, addition+"."+strings.Repeat(" A long story with no end is told before that.", 400), nil),
		with("in the list of excluded problems", dataset.Excluded, "Read two integers. Print the larger one, then the smaller one.", func(r *dataset.Row) {
			r.URL = text1("https://atcoder.jp/contests/demo000/tasks/" + excludedTask)
			r.InputOutput = io(`["2 3\n", "10 -4\n"]`, `["3 2\n", "10 -4\n"]`)
			r.Solutions = solutions(readAll + "print(max(a),min(a))\n")
		}),
	}
}

// broken are rows with cells of another form.
func broken() []quirk {
	return []quirk{
		with("no statement", dataset.BadStatement, " \n", nil),
		with("null statement", dataset.BadStatement, "", func(r *dataset.Row) { r.Question = nil }),
		with("tests cut off", dataset.BadTests, addition+" from a broken file.", func(r *dataset.Row) { r.InputOutput = text1(`{"inputs": ["2 3`) }),
		with("tests null", dataset.BadTests, addition+" without tests.", func(r *dataset.Row) { r.InputOutput = nil }),
		with("tests of objects", dataset.BadTests, addition+" from objects.", func(r *dataset.Row) { r.InputOutput = io(`[{"a": 2}]`, `["5"]`) }),
		with("more inputs than outputs", dataset.UnequalTests, addition+" twice.", func(r *dataset.Row) { r.InputOutput = io(`["2 3\n", "4 5\n"]`, `["5\n"]`) }),
		with("no tests", dataset.NoTests, addition+" untested.", func(r *dataset.Row) { r.InputOutput = io(`[]`, `[]`) }),
		with("solutions as Python wrote them", dataset.BadSolutions, addition+" from a Python list.", func(r *dataset.Row) { r.Solutions = text1("['print(5)']") }),
		with("no solution", dataset.NoSolution, addition+" unsolved.", func(r *dataset.Row) { r.Solutions = text1("[]") }),
		with("null solutions", dataset.NoSolution, addition+" with nothing.", func(r *dataset.Row) { r.Solutions = nil }),
	}
}

// wrong are rows whose solutions do not pass.
func wrong() []quirk {
	return []quirk{
		with("wrong solutions", dataset.ReferenceFailed, addition+" and add one.", func(r *dataset.Row) { r.Solutions = solutions("print(0)\n", "print(1)\n") }),
		with("a package that is not there", dataset.ReferenceFailed, addition+" with a package.", func(r *dataset.Row) {
			r.Solutions = solutions("import numpy as np\nprint(np.sum(np.array(input().split(),int)))\n")
		}),
		with("files", dataset.ReferenceFailed, addition+" from a file.", func(r *dataset.Row) {
			r.Solutions = solutions("a,b=map(int,open('input.txt').read().split())\nprint(a+b,file=open('output.txt','w'))\n")
		}),
		with("references disagree", dataset.ReferencesDisagree, "Read an integer that is not negative. Print a number whose square it is.", func(r *dataset.Row) {
			r.InputOutput = io(`["0\n", "9\n"]`, `["0\n", "3\n"]`)
			r.Solutions = solutions("print(-int(int(input())**.5))\n", "print(int(int(input())**.5))\n")
		}),
		with("a bad copy that must not shadow the good one", dataset.ReferenceFailed, original, func(r *dataset.Row) {
			r.URL, r.Solutions = text1(originalURL), solutions("print('?')\n")
		}),
	}
}

const (
	original     = "Read two integers. Print the sum of their squares."
	originalURL  = "https://codeforces.com/problemset/problem/990001/A"
	excludedTask = "demo000_a"
)

// copies are one problem four times: the first is kept.
func copies() []quirk {
	again := func(name string, want dataset.Reason, statement, url string) quirk {
		return with(name, want, statement, func(r *dataset.Row) {
			r.URL = text1(url)
			r.InputOutput = io(`["2 3\n", "10 -4\n"]`, `["13\n", "116\n"]`)
			r.Solutions = solutions(readAll + "print(a[0]**2+a[1]**2)\n")
		})
	}
	return []quirk{
		again("the good copy", dataset.Kept, original, originalURL),
		again("the same text", dataset.DuplicateText, "READ two integers: print the sum of their squares!", "https://example.org/squares"),
		again("the same address", dataset.DuplicateURL, "Squares. Read two integers and add their squares.", "http://www.codeforces.com/problemset/problem/990001/A/"),
		again("the same platform id", dataset.DuplicatePlatformID, "Squares again. Two integers are given; print their squares' sum.", "https://codeforces.com/contest/990001/problem/a"),
	}
}

// Exclusions is the demo's list of excluded problems in the form of dataset.ReadExcluded; the bundled list is this.
func Exclusions() []byte {
	return fmt.Appendf(nil, "{\"platform\": \"atcoder:%s\"}\n{\"text\": \"A problem that the demo does not hold.\"}\n", excludedTask)
}

// row is a bundled problem in the schema of the shards.
func (p problem) row(i int) dataset.Row {
	inputs, outputs := jsonLists(p.tests)
	return dataset.Row{
		Question: text1(p.statement), Solutions: solutions(p.task.code()), InputOutput: io(inputs, outputs), StarterCode: text1(""),
		Difficulty: text1("EASY"), RawTags: text1("['implementation']"), Name: text1(fmt.Sprintf("Task %03d", i)),
		Source: text1([...]string{"fold", "list", "text"}[p.task.kind]), Tags: text1("['Implementation']"), SkillTypes: text1("[]"),
		TimeLimit: text1("1 second"), PictureNum: text1("0"), MemoryLimit: text1("256 megabytes"),
	}
}

func jsonLists(tests []judge.Test) (inputs, outputs string) {
	in, out := make([]string, len(tests)), make([]string, len(tests))
	for i, t := range tests {
		in[i], out[i] = t.Input+"\n", t.Output+"\n"
	}
	return *solutions(in...), *solutions(out...)
}
