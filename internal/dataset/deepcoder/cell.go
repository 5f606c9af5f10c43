package deepcoder

import (
	"errors"
	"fmt"
	"strings"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/dataset/literal"
	"github.com/steadyrl/steady/internal/judge"
)

// cell is what stands in a cell of tests.
type cell struct {
	tests    []judge.Test // none if a function is called
	stored   int          // tests in the cell, whatever they test
	function bool         // a test calls a function
	fnName   string       // empty if the cell does not give it
}

// refusal is a reason not to use a cell.
type refusal struct {
	reason   dataset.Reason
	evidence string
}

func (r *refusal) Error() string { return string(r.reason) + ": " + r.evidence }

// limits bound the tests of a cell in number and in bytes of inputs and outputs; 0 means no bound.
type limits struct{ maxTests, maxBytes int }

// decode reads a cell as JSON or, if it is none, as a Python literal. The tests share no memory with text. One test that calls a
// function makes the whole cell one of a function, whose tests are counted and not looked at further. Errors: *refusal.
func decode(text []byte, l limits) (cell, error) {
	c, err := decodeAs(text, l, literal.JSON)
	if first, ok := errors.AsType[*literal.Error](err); ok {
		c, err = decodeAs(text, l, literal.Python)
		if second, ok := errors.AsType[*literal.Error](err); ok {
			err = &refusal{dataset.BadTests, fmt.Sprintf("neither JSON (%v) nor a Python literal (%v)", first, second)}
		}
	}
	return c, err
}

// decoder reads one cell.
type decoder struct {
	*literal.Reader[[]byte]
	limits
	cell
	flaw *refusal // the first one; it does not matter if a function is called
	size int      // bytes of inputs and outputs
}

func decodeAs(text []byte, l limits, syntax literal.Syntax) (cell, error) {
	d := &decoder{Reader: literal.NewReader(text, syntax), limits: l}
	var err error
	switch d.Peek() {
	case literal.List:
		err = d.List(d.test)
	case literal.Object:
		err = d.columns()
	default:
		d.refuse(dataset.BadTests, "neither a list nor an object")
		err = d.Skip()
	}
	if err == nil {
		err = d.End()
	}
	switch {
	case err != nil:
		return cell{}, err
	case d.function:
		return cell{stored: d.stored, function: true, fnName: d.fnName}, nil
	case d.flaw != nil:
		return cell{}, d.flaw
	}
	return d.cell, nil
}

// refuse notes a flaw. Tests that nobody will use are dropped at once.
func (d *decoder) refuse(reason dataset.Reason, format string, args ...any) {
	if d.flaw == nil {
		d.flaw = &refusal{reason, fmt.Sprintf(format, args...)}
	}
	d.tests = nil
}

// add counts a test and keeps it if it may be used.
func (d *decoder) add(t judge.Test) {
	if d.stored++; d.maxTests > 0 && d.stored > d.maxTests {
		d.refuse(dataset.TooManyTests, "more than %d tests", d.maxTests)
	}
	d.room(len(t.Input) + len(t.Output))
	if d.flaw == nil {
		d.tests = append(d.tests, t)
	}
}

// room counts bytes of tests.
func (d *decoder) room(n int) {
	if d.size += n; d.maxBytes > 0 && d.size > d.maxBytes {
		d.refuse(dataset.TestsTooLarge, "more than %d bytes of tests", d.maxBytes)
	}
}

// test reads one object of a list.
func (d *decoder) test() error {
	if d.Peek() != literal.Object {
		d.refuse(dataset.BadTests, "test %d is no object", d.stored)
		d.stored++
		return d.Skip()
	}
	var t judge.Test
	input, output := false, false
	err := d.Object(func(key string) (err error) {
		switch key {
		case "input":
			input = true
			t.Input, err = d.value()
		case "output":
			output = true
			t.Output, err = d.value()
		case "fn_name":
			err = d.name()
		case "type", "testtype":
			err = d.kind()
		default:
			err = d.Skip()
		}
		return err
	})
	if !input || !output {
		d.refuse(dataset.BadTests, "test %d has no input or no output", d.stored)
	}
	d.add(t)
	return err
}

// columns reads the object with the lists inputs and outputs.
func (d *decoder) columns() error {
	var lists [2][]string
	var n [2]int
	var seen [2]bool
	column := func(i int) error {
		if seen[i] {
			d.refuse(dataset.BadTests, "inputs or outputs are there twice")
		}
		seen[i] = true
		if d.Peek() != literal.List {
			d.refuse(dataset.BadTests, "inputs or outputs are no list")
			return d.Skip()
		}
		return d.List(func() error {
			text, err := d.value()
			d.room(len(text))
			if n[i]++; d.flaw == nil {
				lists[i] = append(lists[i], text)
			} else {
				lists = [2][]string{}
			}
			return err
		})
	}
	err := d.Object(func(key string) error {
		switch key {
		case "inputs":
			return column(0)
		case "outputs":
			return column(1)
		case "fn_name":
			return d.name()
		}
		return d.Skip()
	})
	if n[0] != n[1] {
		d.refuse(dataset.UnequalTests, "%d inputs, %d outputs", n[0], n[1])
	}
	d.size = 0
	for i := range n[0] {
		if d.flaw != nil {
			d.stored = n[0]
			break
		}
		d.add(judge.Test{Input: lists[0][i], Output: lists[1][i]})
	}
	return err
}

// value reads an input or output: a text, lines of text, which are joined by line breaks, or a number, which keeps its digits. Anything
// else only a function can take.
func (d *decoder) value() (string, error) {
	switch d.Peek() {
	case literal.Text:
		return d.Text()
	case literal.Number:
		return d.Number()
	case literal.List:
		var lines []string
		err := d.List(func() error {
			if d.Peek() != literal.Text {
				d.refuse(dataset.BadTests, "test %d has a list of something else than texts", d.stored)
				return d.Skip()
			}
			line, err := d.Text()
			lines = append(lines, line)
			return err
		})
		return strings.Join(lines, "\n"), err
	}
	d.refuse(dataset.BadTests, "test %d has neither a text nor lines of text", d.stored)
	return "", d.Skip()
}

// text reads a text; anything else is empty, and a flaw unless it is null.
func (d *decoder) text(key string) (string, error) {
	switch d.Peek() {
	case literal.Text:
		return d.Text()
	case literal.Word:
		word, err := d.Word()
		if word != "null" {
			d.refuse(dataset.BadTests, "%s is no text", key)
		}
		return "", err
	}
	d.refuse(dataset.BadTests, "%s is no text", key)
	return "", d.Skip()
}

func (d *decoder) name() error {
	name, err := d.text("fn_name")
	if name = strings.TrimSpace(name); name != "" {
		d.function, d.fnName = true, name
	}
	return err
}

func (d *decoder) kind() error {
	kind, err := d.text("the kind of a test")
	switch kind {
	case "", "stdin", "stdin_stdout":
	case "functional", "function_call":
		d.function = true
	default:
		d.refuse(dataset.BadTests, "a test of the kind %.40q", kind)
	}
	return err
}
