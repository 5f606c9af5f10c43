package devserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// lookEvery is how often the log of a running server is looked at.
const lookEvery = 2 * time.Second

// troubles finds in the server's log why it cannot use its database. The server itself goes on then, and everything waits
// without a word: calls to it fail inside and are tried again for ever.
type troubles struct {
	file string
	at   int64           // what is before it was read
	seen map[string]bool // each text is told once
}

// sinceNow looks at what the log gets from now on.
func sinceNow(file string) *troubles {
	t := &troubles{file: file, seen: map[string]bool{}}
	if info, err := os.Stat(file); err == nil {
		t.at = info.Size()
	}
	return t
}

// watch calls tell for each new trouble until ctx ends.
func (t *troubles) watch(ctx context.Context, tell func(string)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, text := range t.next() {
				tell(text)
			}
		}
	}
}

// most bounds what one look reads; a log that grows faster repeats itself.
const most = 4 << 20

// next returns the troubles in whole lines that are new since the last call. A log that cannot be read has none.
func (t *troubles) next() []string {
	f, err := os.Open(t.file)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.NewSectionReader(f, t.at, most))
	if err != nil {
		return nil
	}
	end := bytes.LastIndexByte(data, '\n') + 1
	if end == 0 && len(data) == most {
		end = most // one line without end
	}
	t.at += int64(end)
	var found []string
	for line := range bytes.Lines(data[:end]) {
		if text := databaseError(line); text != "" && !t.seen[text] {
			t.seen[text] = true
			found = append(found, text)
		}
	}
	return found
}

// resultCode is SQLite's result code, with which its driver ends each error.
var resultCode = regexp.MustCompile(`\((\d+)\)$`)

// databaseError returns the error of a log line if it is one of SQLite that does not pass by itself: read only (8), input
// or output (10), damaged (11), full (13), not opened (14), no database (26). Others, such as locked (5), are daily life.
func databaseError(line []byte) string {
	if !bytes.Contains(line, []byte("sqlite")) {
		return ""
	}
	var entry struct {
		Error string `json:"error"`
		Type  string `json:"error-type"`
	}
	if json.Unmarshal(line, &entry) != nil || !strings.HasPrefix(entry.Type, "sqlite.") {
		return ""
	}
	m := resultCode.FindStringSubmatch(entry.Error)
	if m == nil {
		return ""
	}
	code, err := strconv.Atoi(m[1])
	if err != nil {
		return ""
	}
	switch code & 0xff { // the rest is detail
	case 8, 10, 11, 13, 14, 26:
		return entry.Error
	}
	return ""
}
