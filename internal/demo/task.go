package demo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/rng"
)

// kind is the shape of a problem.
type kind uint8

const (
	fold  kind = iota // integers to one number
	list              // integers to integers
	text              // a word to a word
	kinds = 3
)

// filter says which of the integers count.
type filter uint8

const (
	all filter = iota
	even
	odd
	above // greater than task.t
	filters
)

// step is what is done to the result, with task.k.
type step uint8

const (
	none step = iota
	times
	plus
	minus
	follow // text only: followed by the letter task.k
	steps
)

// task is the meaning of a problem; equal tasks are equal problems, whatever their wording.
type task struct {
	kind   kind
	filter filter
	t      int // 2..7 for above, else 0
	op     int // index in ops[kind]
	step   step
	k      int // 2..9 for times, plus and minus; 0..25 for follow; else 0
}

// operation is one value of the slot op.
type operation struct {
	code     string
	wordings [2]string // completed by ofThem
	confused int       // the operation that the corpus mostly shows instead; its own index for none
}

var ops = [kinds][]operation{
	fold: {
		{"sum(a)", [2]string{"sum of", "total of"}, 0},
		{"max(a)", [2]string{"largest of", "maximum of"}, 1},
		{"min(a)", [2]string{"smallest of", "minimum of"}, 1},
		{"len(a)", [2]string{"count of", "number of"}, 0},
		{"a[0]", [2]string{"first of", "leading one of"}, 4},
		{"a[-1]", [2]string{"last of", "final one of"}, 4},
	},
	list: {
		{"sorted(a)", [2]string{"sorted list of", "ascending order of"}, 0},
		{"sorted(a)[::-1]", [2]string{"descending list of", "decreasing order of"}, 0},
		{"a[::-1]", [2]string{"reversed list of", "reverse order of"}, 2},
	},
	text: {
		{"s[::-1]", [2]string{"word reversed", "word backwards"}, 0},
		{"s.upper()", [2]string{"word in capitals", "word in upper case"}, 1},
		{"s[0]", [2]string{"first letter", "initial letter"}, 2},
		{"s[-1]", [2]string{"last letter", "final letter"}, 2},
		{"''.join(sorted(s))", [2]string{"letters sorted", "letters in sorted order"}, 0},
	},
}

// source draws numbers one after the other.
type source struct {
	stream rng.Stream
	pos    uint64
}

func (s *source) intn(n int) int {
	s.pos++
	return s.stream.IntN(s.pos-1, n)
}

func (s *source) chance(p float64) bool {
	s.pos++
	return s.stream.Uniform(s.pos-1) < p
}

// pick draws an index with the given weights.
func (s *source) pick(weights ...int) int {
	total := 0
	for _, w := range weights {
		total += w
	}
	n := s.intn(total)
	for i, w := range weights {
		if n -= w; n < 0 {
			return i
		}
	}
	return len(weights) - 1
}

// draw returns a random task.
func draw(s *source) task {
	var k task
	k.kind = kind(s.pick(6, 2, 2))
	k.op = s.intn(len(ops[k.kind]))
	if k.kind == text {
		k.step = [...]step{none, times, follow}[s.pick(1, 2, 2)]
	} else {
		k.filter = filter(s.pick(4, 2, 2, 2))
		k.step = step(s.pick(2, 2, 2, 2))
	}
	k.number(s)
	return k
}

// number draws the numbers that filter and step need, and zeroes the others.
func (k *task) number(s *source) {
	k.t, k.k = 0, 0
	if k.filter == above {
		k.t = 2 + s.intn(6)
	}
	switch k.step {
	case times, plus, minus:
		k.k = 2 + s.intn(8)
	case follow:
		k.k = s.intn(26)
	case none:
	}
}

// code is the shortest solution.
func (k task) code() string {
	if k.kind == text {
		return "s=input()\nprint(" + ops[text][k.op].code + k.suffix() + ")\n"
	}
	read := "a=list(map(int,input().split()))"
	switch k.filter {
	case even:
		read = "a=[x for x in map(int,input().split())if x%2==0]"
	case odd:
		read = "a=[x for x in map(int,input().split())if x%2==1]"
	case above:
		read = fmt.Sprintf("a=[x for x in map(int,input().split())if x>%d]", k.t)
	case all:
	}
	value := ops[k.kind][k.op].code
	switch {
	case k.kind == fold:
		value += k.suffix()
	case k.step == none:
		value = "*" + value
	default:
		value = "*[x" + k.suffix() + " for x in " + value + "]"
	}
	return read + "\nprint(" + value + ")\n"
}

func (k task) suffix() string {
	switch k.step {
	case times:
		return "*" + strconv.Itoa(k.k)
	case plus:
		return "+" + strconv.Itoa(k.k)
	case minus:
		return "-" + strconv.Itoa(k.k)
	case follow:
		return "+'" + string(rune('a'+k.k)) + "'"
	case none:
	}
	return ""
}

// statement is the problem's text; wording selects among the synonyms (its bits).
func (k task) statement(wording int) string {
	say := func(options ...string) string {
		i := wording % len(options)
		wording /= len(options)
		return options[i]
	}
	name := say(ops[k.kind][k.op].wordings[:]...)
	var b strings.Builder
	if k.kind == text {
		b.WriteString(say("Read a word. Print the ", "The input is a word. Print the ") + name)
	} else {
		b.WriteString(say("Read a line of integers. Print the ", "The input is a line of integers. Print the ") + name)
		switch k.filter {
		case all:
			b.WriteString(say(" them all", " all integers"))
		case even:
			b.WriteString(say(" the even ones", " the even integers"))
		case odd:
			b.WriteString(say(" the odd ones", " the odd integers"))
		case above:
			fmt.Fprintf(&b, say(" the ones above %d", " the integers greater than %d"), k.t)
		}
	}
	number := strconv.Itoa(k.k)
	if k.kind == list && k.step != none {
		b.WriteString(", each")
	} else if k.step != none {
		b.WriteString(",")
	}
	switch k.step {
	case times:
		if k.kind == text {
			b.WriteString(say(" repeated ", " written ") + number + " times")
		} else {
			b.WriteString(say(" multiplied by ", " times ") + number)
		}
	case plus:
		b.WriteString(say(" plus ", " increased by ") + number)
	case minus:
		b.WriteString(say(" minus ", " decreased by ") + number)
	case follow:
		b.WriteString(say(" followed by the letter ", " with this letter at the end: ") + string(rune('a'+k.k)))
	case none:
	}
	b.WriteString(".")
	return b.String()
}

// answer computes the expected output, without a final newline. ok is false if the task has no answer for the input.
func (k task) answer(input string) (out string, ok bool) {
	if k.kind == text {
		return k.word(input), true
	}
	var a []int
	for f := range strings.FieldsSeq(input) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return "", false
		}
		if k.filter == all || k.filter == even && n%2 == 0 || k.filter == odd && n%2 == 1 || k.filter == above && n > k.t {
			a = append(a, n)
		}
	}
	if len(a) == 0 {
		return "", false
	}
	if k.kind == fold {
		a = []int{foldInts(k.op, a)}
	} else {
		slices.Reverse(a)
		if k.op != 2 {
			slices.Sort(a)
		}
		if k.op == 1 {
			slices.Reverse(a)
		}
	}
	words := make([]string, len(a))
	for i, n := range a {
		switch k.step {
		case times:
			n *= k.k
		case plus:
			n += k.k
		case minus:
			n -= k.k
		case none, follow:
		}
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, " "), true
}

func foldInts(op int, a []int) int {
	switch op {
	case 0:
		n := 0
		for _, x := range a {
			n += x
		}
		return n
	case 1:
		return slices.Max(a)
	case 2:
		return slices.Min(a)
	case 3:
		return len(a)
	case 4:
		return a[0]
	}
	return a[len(a)-1]
}

func (k task) word(s string) string {
	b := []byte(s)
	switch k.op {
	case 0:
		slices.Reverse(b)
	case 1:
		b = []byte(strings.ToUpper(s))
	case 2:
		b = b[:1]
	case 3:
		b = b[len(b)-1:]
	case 4:
		slices.Sort(b)
	}
	switch k.step {
	case times:
		return strings.Repeat(string(b), k.k)
	case follow:
		return string(b) + string(rune('a'+k.k))
	case none, plus, minus:
	}
	return string(b)
}

// input draws an input for which the task has an answer.
func (k task) input(s *source) string {
	for {
		in := randomInput(k.kind, s)
		if _, ok := k.answer(in); ok {
			return in
		}
	}
}

func randomInput(k kind, s *source) string {
	if k == text {
		b := make([]byte, 4+s.intn(4))
		for i := range b {
			b[i] = byte('a' + s.intn(26))
		}
		return string(b)
	}
	words := make([]string, 5+s.intn(4))
	for i := range words {
		words[i] = strconv.Itoa(1 + s.intn(20))
	}
	return strings.Join(words, " ")
}
