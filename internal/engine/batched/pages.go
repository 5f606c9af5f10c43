package batched

// PageTokens is the number of tokens of one cache page.
const PageTokens = 32

// page holds keys and values of PageTokens consecutive tokens of a sequence. Its contents are a function of the weights, the tokens and everything before
// them, so sequences with a common prefix share pages.
type page struct {
	id     uint64 // of this use of the page
	refs   int
	ready  bool // all tokens are computed
	shared bool // listed in pages.known
	queued bool // listed in pages.idle
	key    pageKey
}

// pageKey identifies a full page by its predecessor's id (0 for the first) and its tokens.
type pageKey struct {
	parent uint64
	tokens [PageTokens]int32
}

// pages hands out page numbers. It belongs to the scheduler's goroutine.
type pages struct {
	limit   int // 0 for none
	maxIdle int // idle pages that are kept for prompts with the same beginning
	lastID  uint64
	all     []page
	free    []int32
	known   map[pageKey]int32
	idle    []int32 // no sequence has them; the oldest first, with entries that are in use again
	resting int     // idle ones without a reference
}

func newPages(limit, maxIdle int) *pages {
	return &pages{limit: limit, maxIdle: maxIdle, known: map[pageKey]int32{}}
}

// available is the number of pages that can be taken.
func (c *pages) available() int { return len(c.free) + c.resting + c.limit - len(c.all) }

// take returns an unshared page with one reference.
func (c *pages) take() int32 {
	if len(c.free) == 0 && c.limit > 0 && len(c.all) == c.limit {
		c.evict()
	}
	c.lastID++
	p := page{id: c.lastID, refs: 1}
	if n := len(c.free); n > 0 {
		i := c.free[n-1]
		c.free = c.free[:n-1]
		c.all[i] = p
		return i
	}
	c.all = append(c.all, p)
	return int32(len(c.all) - 1) //nolint:gosec // a count of pages
}

// evict frees the page that has been idle longest.
func (c *pages) evict() {
	for len(c.free) == 0 {
		i := c.idle[0]
		c.idle = c.idle[1:]
		c.all[i].queued = false
		if c.all[i].refs == 0 {
			c.resting--
			c.forget(i)
		}
	}
}

func (c *pages) hold(i int32) {
	if c.all[i].refs == 0 {
		c.resting--
	}
	c.all[i].refs++
}

// release gives back one reference. Shared pages stay for later prompts until too many are idle.
func (c *pages) release(i int32) {
	p := &c.all[i]
	p.refs--
	if p.refs > 0 {
		return
	}
	if !p.shared || !p.ready {
		c.forget(i)
		return
	}
	c.resting++
	if !p.queued {
		p.queued = true
		c.idle = append(c.idle, i)
	}
	for len(c.idle) > c.maxIdle {
		i := c.idle[0]
		c.idle = c.idle[1:]
		c.all[i].queued = false
		if c.all[i].refs == 0 {
			c.resting--
			c.forget(i)
		}
	}
}

func (c *pages) forget(i int32) {
	p := &c.all[i]
	if at, ok := c.known[p.key]; p.shared && ok && at == i {
		delete(c.known, p.key)
	}
	p.shared = false
	c.free = append(c.free, i)
}

// flush makes every page unknown: their contents belong to old weights. Idle ones are freed.
func (c *pages) flush() {
	clear(c.known)
	for _, i := range c.idle {
		p := &c.all[i]
		p.queued, p.shared = false, false
		if p.refs == 0 {
			c.free = append(c.free, i)
		}
	}
	c.idle, c.resting = nil, 0
}

func (c *pages) keyOf(before, tokens []int32) (k pageKey, ok bool) {
	if n := len(before); n > 0 {
		last := c.all[before[n-1]]
		if !last.shared {
			return k, false
		}
		k.parent = last.id
	}
	copy(k.tokens[:], tokens)
	return k, true
}

// adopt continues the sequence by known pages. It returns false if the next page is being computed for another sequence in this very
// step: waiting one step is cheaper than computing it twice.
func (c *pages) adopt(s *Sequence) bool {
	for !s.Score && s.Done%PageTokens == 0 && s.Done+PageTokens < len(s.Tokens) {
		at := s.Done / PageTokens
		key, ok := c.keyOf(s.Pages[:at], s.Tokens[s.Done:s.Done+PageTokens])
		if !ok {
			return true
		}
		i, ok := c.known[key]
		if !ok {
			return true
		}
		if !c.all[i].ready {
			return false
		}
		c.hold(i)
		if at < len(s.Pages) {
			c.release(s.Pages[at])
			s.Pages[at] = i
		} else {
			s.Pages = append(s.Pages, i)
		}
		s.Done += PageTokens
	}
	return true
}

// extend provides pages for n more tokens and lists those that they fill.
func (c *pages) extend(s *Sequence, n int) (full []int32) {
	for i := s.Done / PageTokens; i*PageTokens < s.Done+n; i++ {
		if i == len(s.Pages) {
			s.Pages = append(s.Pages, c.take())
		}
		if (i+1)*PageTokens > s.Done+n || s.Score {
			continue
		}
		at := s.Pages[i]
		full = append(full, at)
		key, ok := c.keyOf(s.Pages[:i], s.Tokens[i*PageTokens:(i+1)*PageTokens])
		if _, known := c.known[key]; ok && !known {
			c.all[at].key, c.all[at].shared = key, true
			c.known[key] = at
		}
	}
	return full
}

// advance records n tokens whose keys and values are there.
func (c *pages) advance(s *Sequence, n int, full []int32) {
	s.Done += n
	for _, i := range full {
		c.all[i].ready = true
	}
}

// fill takes pages up to a number at once.
func (c *pages) fill(s *Sequence, n int) {
	for len(s.Pages) < n {
		s.Pages = append(s.Pages, c.take())
	}
}

// drop releases all pages of s.
func (c *pages) drop(s *Sequence) {
	for _, i := range s.Pages {
		c.release(i)
	}
	s.Pages, s.Done = nil, 0
}
