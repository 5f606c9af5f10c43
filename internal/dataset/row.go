package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/steadyrl/steady/internal/dataset/literal"
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
// numbers keep their digits, however many. callBased is true if the row names a function. The texts may share the memory of raw.
func parseTests(raw string) (inputs, outputs []string, callBased bool, err error) {
	r := literal.NewReader(raw, literal.JSON)
	var odd error // does not matter if the row names a function
	column := func(name string, to *[]string) error {
		*to = nil
		if r.Peek() == literal.Word {
			word, err := r.Word()
			if err == nil && word != "null" {
				err = fmt.Errorf("%s: not a list", name)
			}
			return err
		}
		return r.List(func() error {
			text, err := oneText(r)
			if shape, ok := errors.AsType[shapeError](err); ok {
				odd, err = errors.Join(odd, fmt.Errorf("%s: element %d: %w", name, len(*to), shape)), nil
			}
			*to = append(*to, text)
			return err
		})
	}
	if r.Peek() == literal.Word {
		err = errors.New("not an object")
		if word, wrong := r.Word(); wrong == nil && word == "null" {
			err = nil // like an object with nothing in it
		}
	} else {
		err = r.Object(func(key string) error {
			switch { // as encoding/json finds the fields of a struct
			case strings.EqualFold(key, "inputs"):
				return column(key, &inputs)
			case strings.EqualFold(key, "outputs"):
				return column(key, &outputs)
			case strings.EqualFold(key, "fn_name"):
				var err error
				callBased, err = isNamed(r)
				return err
			}
			return r.Skip()
		})
	}
	if err == nil {
		err = r.End()
	}
	if err == nil && !callBased {
		err = odd
	}
	if err != nil || callBased {
		return nil, nil, callBased && err == nil, err
	}
	return inputs, outputs, false, nil
}

// isNamed reports whether a value is anything but null and the empty string.
func isNamed(r *literal.Reader[string]) (bool, error) {
	switch r.Peek() {
	case literal.Text:
		name, err := r.Text()
		return name != "", err
	case literal.Word:
		word, err := r.Word()
		return word != "null", err
	default:
		return true, r.Skip()
	}
}

// shapeError is about a value that is JSON, but no test.
type shapeError string

// Error is the text.
func (e shapeError) Error() string { return string(e) }

// oneText reads an element. Errors: shapeError, behind the element; *literal.Error.
func oneText(r *literal.Reader[string]) (string, error) {
	switch r.Peek() {
	case literal.Text:
		return r.Text()
	case literal.Number:
		return r.Number() // of any length, as it is written
	case literal.List:
		var lines []string
		var odd error
		err := r.List(func() error {
			if r.Peek() != literal.Text {
				odd = shapeError("a list of something else than strings")
				return r.Skip()
			}
			line, err := r.Text()
			lines = append(lines, line)
			return err
		})
		if err == nil {
			err = odd
		}
		return strings.Join(lines, "\n"), err
	default:
		if err := r.Skip(); err != nil {
			return "", err
		}
		return "", shapeError("neither a string nor a list of strings")
	}
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
	r := literal.NewReader(raw, literal.Python)
	var out []string
	err := r.List(func() error {
		text, err := r.Text()
		out = append(out, text)
		return err
	})
	if err != nil || r.End() != nil {
		return nil
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
