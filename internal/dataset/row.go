package dataset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/steadyrl/steady/internal/judge"
)

// Row is a row of a shard; every column is an optional string.
type Row struct {
	Question       *string `parquet:"question,optional"`
	Solutions      *string `parquet:"solutions,optional"`
	StarterCode    *string `parquet:"starter_code,optional"`
	InputOutput    *string `parquet:"input_output,optional"`
	Difficulty     *string `parquet:"difficulty,optional"`
	RawTags        *string `parquet:"raw_tags,optional"`
	Name           *string `parquet:"name,optional"`
	Source         *string `parquet:"source,optional"`
	Tags           *string `parquet:"tags,optional"`
	SkillTypes     *string `parquet:"skill_types,optional"`
	URL            *string `parquet:"url,optional"`
	AuxSpace       *string `parquet:"Expected Auxiliary Space,optional"`
	TimeLimit      *string `parquet:"time_limit,optional"`
	Date           *string `parquet:"date,optional"`
	PictureNum     *string `parquet:"picture_num,optional"`
	MemoryLimit    *string `parquet:"memory_limit,optional"`
	TimeComplexity *string `parquet:"Expected Time Complexity,optional"`
}

// columnNames are the names of the columns in the order of Row.places.
var columnNames = []string{
	"question", "solutions", "starter_code", "input_output", "difficulty", "raw_tags", "name", "source", "tags", "skill_types", "url",
	"Expected Auxiliary Space", "time_limit", "date", "picture_num", "memory_limit", "Expected Time Complexity",
}

// places are where the cells belong.
func (r *Row) places() []**string {
	return []**string{
		&r.Question, &r.Solutions, &r.StarterCode, &r.InputOutput, &r.Difficulty, &r.RawTags, &r.Name, &r.Source, &r.Tags, &r.SkillTypes,
		&r.URL, &r.AuxSpace, &r.TimeLimit, &r.Date, &r.PictureNum, &r.MemoryLimit, &r.TimeComplexity,
	}
}

// bytes is the size of all cells.
func (r *Row) bytes() int {
	n := 0
	for _, c := range r.places() {
		n += len(value(*c))
	}
	return n
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// parseTests reads input_output. Elements are strings, or lists of line strings, which are joined by line breaks; bare
// numbers keep their digits, however many. callBased is true if the row names a function.
func parseTests(raw string) (inputs, outputs []string, callBased bool, err error) {
	var io struct {
		Inputs  []json.RawMessage `json:"inputs"`
		Outputs []json.RawMessage `json:"outputs"`
		FnName  json.RawMessage   `json:"fn_name"`
	}
	dec := json.NewDecoder(strings.NewReader(raw))
	if err := dec.Decode(&io); err != nil {
		return nil, nil, false, err
	}
	if dec.More() {
		return nil, nil, false, fmt.Errorf("more than one value")
	}
	if fn := strings.TrimSpace(string(io.FnName)); fn != "" && fn != "null" && fn != `""` {
		return nil, nil, true, nil
	}
	if inputs, err = texts(io.Inputs); err != nil {
		return nil, nil, false, fmt.Errorf("inputs: %w", err)
	}
	if outputs, err = texts(io.Outputs); err != nil {
		return nil, nil, false, fmt.Errorf("outputs: %w", err)
	}
	return inputs, outputs, false, nil
}

func texts(raw []json.RawMessage) ([]string, error) {
	out := make([]string, len(raw))
	for i, r := range raw {
		s, err := oneText(r)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		out[i] = s
	}
	return out, nil
}

func oneText(raw json.RawMessage) (string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "", fmt.Errorf("nothing")
	}
	switch raw[0] {
	case '"':
		var s string
		return s, json.Unmarshal(raw, &s)
	case '[':
		var lines []json.RawMessage
		if err := json.Unmarshal(raw, &lines); err != nil {
			return "", err
		}
		parts := make([]string, len(lines))
		for i, l := range lines {
			if l = bytes.TrimSpace(l); l[0] != '"' {
				return "", fmt.Errorf("a list of something else than strings: %.40s", l)
			}
			if err := json.Unmarshal(l, &parts[i]); err != nil {
				return "", err
			}
		}
		return strings.Join(parts, "\n"), nil
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return string(raw), nil // a number of any length, as it is written
	}
	return "", fmt.Errorf("neither a string nor a list of strings: %.40s", raw)
}

// parseSolutions reads the JSON list of reference programs; blank ones are left out.
func parseSolutions(raw string) ([]string, error) {
	var all []string
	if err := json.Unmarshal([]byte(raw), &all); err != nil {
		return nil, err
	}
	var out []string
	for _, s := range all {
		if strings.TrimSpace(s) != "" {
			out = append(out, s)
		}
	}
	return out, nil
}

// parseList reads a Python list literal of strings, as tags are written; what cannot be read is no list.
func parseList(raw string) []string {
	raw = strings.TrimSpace(raw)
	if !strings.HasPrefix(raw, "[") || !strings.HasSuffix(raw, "]") {
		return nil
	}
	var out []string
	rest := raw[1 : len(raw)-1]
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimLeft(rest, ", \t\n") {
		quote := rest[0]
		if quote != '\'' && quote != '"' {
			return nil
		}
		var item strings.Builder
		i := 1
		for ; i < len(rest) && rest[i] != quote; i++ {
			if rest[i] == '\\' && i+1 < len(rest) {
				i++
			}
			item.WriteByte(rest[i])
		}
		if i == len(rest) {
			return nil
		}
		out = append(out, item.String())
		rest = rest[i+1:]
	}
	return out
}

// heading is the line above the examples of a statement.
var heading = regexp.MustCompile(`(?im)^[^\pL\n]*(sample|example)s?\b[^\n]{0,30}$`)

// inputLine and outputLine stand above an example's texts.
var (
	inputLine  = regexp.MustCompile(`(?im)^[^\pL\n]*(?:sample |example )?input\b[ #\d]*:?[^\pL\n]*\n`)
	outputLine = regexp.MustCompile(`(?im)^[^\pL\n]*(?:sample |example )?output\b[ #\d]*:?[^\pL\n]*\n`)
)

// body is the statement without its examples.
func body(statement string) string {
	if at := heading.FindStringIndex(statement); at != nil {
		return statement[:at[0]]
	}
	return statement
}

// samples finds pairs of texts below "Input" and "Output" in the examples of a statement. What it cannot find costs
// nothing: samples are for people.
func samples(statement string) []judge.Test {
	const most = 8
	var out []judge.Test
	rest := statement[len(body(statement)):]
	for len(out) < most {
		in := inputLine.FindStringIndex(rest)
		if in == nil {
			break
		}
		rest = rest[in[1]:]
		mid := outputLine.FindStringIndex(rest)
		if mid == nil {
			break
		}
		input := strings.Trim(rest[:mid[0]], "\n")
		output, _, _ := strings.Cut(strings.TrimLeft(rest[mid[1]:], "\n"), "\n\n")
		out = append(out, judge.Test{Input: input + "\n", Output: strings.Trim(output, "\n") + "\n"})
		rest = rest[mid[1]:]
	}
	return out
}

func badText(s string) string {
	switch {
	case strings.TrimSpace(s) == "":
		return "null or blank"
	case !utf8.ValidString(s):
		return "not UTF-8"
	case strings.ContainsRune(s, 0):
		return "a NUL character"
	}
	return ""
}
