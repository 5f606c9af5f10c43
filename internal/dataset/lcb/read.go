package lcb

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
)

// Problem is a line of a file.
type Problem struct {
	Title      string // question_title
	Content    string // question_content, the statement
	Platform   string // leetcode, codeforces or atcoder
	ID         string // question_id
	Contest    string // contest_id
	Date       string // contest_date, ISO
	Starter    string // starter_code, empty for tasks of standard input and output
	Difficulty string // easy, medium or hard
	// Public and Private are the cells with the tests, as they are stored, Metadata a JSON object, with func_name if a function is
	// called; only with Options.Tests.
	Public, Private, Metadata string
}

// Options bound the work.
type Options struct {
	Tests bool // keep the cells with tests
	// Want says, from the fields before a cell with tests, whether to keep the cell; nil keeps all.
	Want func(*Problem) bool
	// MaxText is the largest small field, MaxCell the largest cell with tests, in bytes; 0 means 4 MiB and 512 MiB.
	MaxText, MaxCell int
}

// Read gives the problems of a file to each, in their order. Blank lines are left out, unknown fields skipped. Errors: Corrupt
// (naming the line: no object, a field that is no text or too large, a line without platform or id), those of r and of each.
func Read(r io.Reader, o Options, each func(*Problem) error) error {
	if o.MaxText == 0 {
		o.MaxText = 4 << 20
	}
	if o.MaxCell == 0 {
		o.MaxCell = 512 << 20
	}
	s := &scanner{r: bufio.NewReaderSize(r, 64<<10)}
	for line := 1; ; line++ {
		p, err := s.problem(o)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errBlank):
			continue
		case err == nil && (p.Platform == "" || p.ID == ""):
			err = errors.New("a problem without platform or question_id")
		}
		if s.failed != nil {
			return s.failed
		}
		if err != nil {
			return fault.New(fault.Corrupt, "lcb.Read", "line %d: %w", line, err).WithHint("fetch the file again: JSON Lines of LiveCodeBench's code_generation_lite")
		}
		if err := each(p); err != nil {
			return err
		}
	}
}

// errBlank is a line with nothing in it.
var errBlank = errors.New("a blank line")

// scanner reads JSON from a stream without holding what nobody wants.
type scanner struct {
	r      *bufio.Reader
	failed error // of the reader below, other than its end
}

// problem reads a line. Errors: io.EOF (there is none), errBlank.
func (s *scanner) problem(o Options) (*Problem, error) {
	c, err := s.next()
	switch {
	case err != nil:
		return nil, err
	case c == '\n':
		return nil, errBlank
	case c != '{':
		return nil, errors.New("not an object")
	}
	p := &Problem{}
	fields := map[string]*string{
		"question_title": &p.Title, "question_content": &p.Content, "platform": &p.Platform, "question_id": &p.ID, "contest_id": &p.Contest,
		"contest_date": &p.Date, "starter_code": &p.Starter, "difficulty": &p.Difficulty,
	}
	limits := map[string]int{}
	if o.Tests {
		fields["metadata"], fields["public_test_cases"], fields["private_test_cases"] = &p.Metadata, &p.Public, &p.Private
		limits["public_test_cases"], limits["private_test_cases"] = o.MaxCell, o.MaxCell
	}
	err = s.object(func(key string) error {
		to := fields[key]
		limit := limits[key]
		if to == nil || limit > 0 && o.Want != nil && !o.Want(p) {
			return s.skip()
		}
		if limit == 0 {
			limit = o.MaxText
		}
		text, err := s.text(limit)
		if err != nil {
			return errors.Join(errors.New(key), err)
		}
		*to = text
		return nil
	})
	if err == nil {
		err = s.lineEnd()
	}
	if errors.Is(err, io.EOF) {
		err = errCut
	}
	return p, err
}

var errCut = errors.New("the file ends in the middle of a line")

// lineEnd wants nothing more on the line.
func (s *scanner) lineEnd() error {
	c, err := s.next()
	if errors.Is(err, io.EOF) || err == nil && c == '\n' {
		return nil
	}
	if err == nil {
		err = errors.New("something after the object")
	}
	return err
}

func (s *scanner) byte() (byte, error) {
	c, err := s.r.ReadByte()
	if err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return c, err
}

// next returns the next byte that is no blank; the end of the line is one that is returned.
func (s *scanner) next() (byte, error) {
	for {
		c, err := s.byte()
		if err != nil || c != ' ' && c != '\t' && c != '\r' {
			return c, err
		}
	}
}

// object reads an object behind its brace; value reads the value of a key.
func (s *scanner) object(value func(key string) error) error {
	for first := true; ; first = false {
		c, err := s.next()
		if err != nil {
			return err
		}
		if c == '}' && first {
			return nil
		}
		if c != '"' {
			return errors.New("an object without a key")
		}
		raw, err := s.str(true, 1024)
		if err != nil {
			return err
		}
		var key string
		if err := json.Unmarshal(raw, &key); err != nil {
			return err
		}
		if c, err = s.next(); err == nil && c != ':' {
			err = errors.New("a key without a value")
		}
		if err == nil {
			err = value(key)
		}
		if err == nil {
			c, err = s.next()
		}
		if err != nil {
			return err
		}
		if c == '}' {
			return nil
		}
		if c != ',' {
			return errors.New("no comma between two keys")
		}
	}
}

// text reads a string, a number as it is written, or null, which is empty.
func (s *scanner) text(limit int) (string, error) {
	c, err := s.next()
	if err != nil {
		return "", err
	}
	if c != '"' {
		raw, err := s.word(c)
		if err != nil || raw == "null" {
			return "", err
		}
		var n json.Number
		if err := json.Unmarshal([]byte(raw), &n); err != nil {
			return "", errors.New("not a text")
		}
		return raw, nil
	}
	raw, err := s.str(true, limit)
	if err != nil {
		return "", err
	}
	var out string
	err = json.Unmarshal(raw, &out)
	return out, err
}

// str reads a string behind its quote. If it is kept it is returned with its quotes, as it is written.
func (s *scanner) str(keep bool, limit int) ([]byte, error) {
	var raw []byte
	if keep {
		raw = append(raw, '"')
	}
	for escaped := false; ; {
		c, err := s.byte()
		if err != nil {
			return nil, err
		}
		if c < ' ' {
			return nil, errors.New("a control character, or the end of the line, in a text")
		}
		if keep {
			if raw = append(raw, c); len(raw) > limit+2 {
				return nil, errors.New("a text that is too large")
			}
		}
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			return raw, nil
		}
	}
}

// word reads a number or a literal that begins with c.
func (s *scanner) word(c byte) (string, error) {
	word := []byte{c}
	for {
		c, err := s.byte()
		if errors.Is(err, io.EOF) {
			return string(word), nil
		}
		if err != nil {
			return "", err
		}
		if strings.IndexByte(" \t\r\n,}]", c) >= 0 {
			return string(word), s.r.UnreadByte()
		}
		if word = append(word, c); len(word) > 64 {
			return "", errors.New("not a value")
		}
	}
}

// skip reads over a value without keeping it. Strings, brackets and words have to be in order; what else is between them does
// not matter, as nobody looks at it.
func (s *scanner) skip() error {
	for depth := 0; ; {
		c, err := s.next()
		if err != nil {
			return err
		}
		switch c {
		case '"':
			_, err = s.str(false, 0)
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case '\n':
			return errors.New("the end of the line in a value")
		case ',', ':':
			if depth == 0 {
				return errors.New("no value")
			}
		default:
			_, err = s.word(c)
		}
		if err != nil {
			return err
		}
		if depth == 0 {
			return nil
		}
		if depth < 0 || depth > 100 {
			return errors.New("brackets that do not match")
		}
	}
}

// Platform is the problem's identity in the form of dataset.PlatformID, for example codeforces:1873+A; empty for an unknown platform.
func (p *Problem) PlatformID() string {
	switch p.Platform {
	case "atcoder":
		return dataset.PlatformID("https://atcoder.jp/contests/x/tasks/" + p.ID)
	case "codeforces":
		contest, index, _ := strings.Cut(p.ID, "_")
		return dataset.PlatformID("https://codeforces.com/contest/" + contest + "/problem/" + index)
	case "leetcode":
		return dataset.PlatformID("https://leetcode.com/problems/" + slug(p.Title) + "/")
	}
	return ""
}

var (
	noSlug = regexp.MustCompile(`[^a-z0-9 _-]+`)
	spaces = regexp.MustCompile(`[ _-]+`)
)

// slug is the title as it stands in the address of a problem of LeetCode.
func slug(title string) string {
	return strings.Trim(spaces.ReplaceAllString(noSlug.ReplaceAllString(strings.ToLower(title), ""), "-"), "-")
}

// Exclusion is the problem as an entry of a list of excluded problems.
func (p *Problem) Exclusion() dataset.Exclusion {
	return dataset.Exclusion{Platform: p.PlatformID(), Text: p.Content}
}
