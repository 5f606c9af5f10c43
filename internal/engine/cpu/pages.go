package cpu

// pageTokens is the number of tokens of one cache page; it equals the kernels' panel width.
const pageTokens = padTo

// maxIdlePages bounds the pages that no sequence uses but that are kept for prompts with the same beginning.
const maxIdlePages = 256

// page holds keys and values of 32 consecutive tokens of a sequence for all layers and key/value heads. Its
// contents are a function of the weights, the tokens and everything before them, so sequences with a common prefix share pages.
type page struct {
	data   []float32 // per layer and head: transposed keys [HD][32], values [32][HD]
	id     uint64
	refs   int
	ready  bool // all 32 tokens are computed
	shared bool // listed in pageCache.known
	queued bool // listed in pageCache.idle
	key    pageKey
}

// pageKey identifies a full page by its predecessor (0 for the first) and its tokens.
type pageKey struct {
	parent uint64
	tokens [pageTokens]int32
}

// pageCache owns all pages of a sampler. It belongs to the batch loop's goroutine.
type pageCache struct {
	size   int // floats of one page
	lastID uint64
	free   [][]float32
	known  map[pageKey]*page
	idle   []*page
}

func newPageCache(l *layout) *pageCache {
	return &pageCache{size: l.cfg.Layers * l.cfg.KVHeads * 2 * pageTokens * l.HD, known: map[pageKey]*page{}}
}

// take returns an unshared page with one reference.
func (c *pageCache) take() *page {
	c.lastID++
	p := &page{id: c.lastID, refs: 1}
	if n := len(c.free); n > 0 {
		p.data, c.free = c.free[n-1], c.free[:n-1]
	} else {
		p.data = make([]float32, c.size)
	}
	return p
}

// release gives back one reference. Shared pages stay for later prompts until too many are idle.
func (c *pageCache) release(p *page) {
	p.refs--
	if p.refs > 0 {
		return
	}
	if !p.shared || !p.ready {
		c.forget(p)
		return
	}
	if !p.queued {
		p.queued = true
		c.idle = append(c.idle, p)
	}
	for len(c.idle) > maxIdlePages {
		p := c.idle[0]
		c.idle = c.idle[1:]
		p.queued = false
		if p.refs == 0 {
			c.forget(p)
		}
	}
}

func (c *pageCache) forget(p *page) {
	if p.shared && c.known[p.key] == p {
		delete(c.known, p.key)
	}
	p.shared = false
	c.free = append(c.free, p.data)
}

// flush makes every page unknown: their contents belong to old weights. Idle ones are freed.
func (c *pageCache) flush() {
	clear(c.known)
	for _, p := range c.idle {
		p.queued, p.shared = false, false
		if p.refs == 0 {
			c.free = append(c.free, p.data)
		}
	}
	c.idle = nil
}

func keyOf(pages []*page, tokens []int32) (k pageKey, ok bool) {
	if n := len(pages); n > 0 {
		if !pages[n-1].shared {
			return k, false
		}
		k.parent = pages[n-1].id
	}
	copy(k.tokens[:], tokens)
	return k, true
}

// sequence is one running request.
type sequence struct {
	gen    generation
	tokens []int32
	done   int // tokens whose keys and values are in pages
	pages  []*page
	// wait is true while the receiver handles the last token, dead after it gave up; both are guarded by Sampler.mu.
	wait, dead bool
	out        chan event
	scores     []float32
}

// adopt appends known pages that continue the sequence. It returns false if the next page is being computed for
// another sequence in this very step: waiting one step is cheaper than computing it twice.
func (c *pageCache) adopt(s *sequence) bool {
	for !s.gen.score && s.done%pageTokens == 0 && s.done+pageTokens < len(s.tokens) {
		key, ok := keyOf(s.pages, s.tokens[s.done:s.done+pageTokens])
		if !ok {
			return true
		}
		p := c.known[key]
		if p == nil {
			return true
		}
		if !p.ready {
			return false
		}
		p.refs++
		s.pages = append(s.pages, p)
		s.done += pageTokens
	}
	return true
}

// extend provides pages for n more tokens and lists those that they fill.
func (c *pageCache) extend(s *sequence, n int) (full []*page) {
	for i := s.done / pageTokens; i*pageTokens < s.done+n; i++ {
		if i == len(s.pages) {
			s.pages = append(s.pages, c.take())
		}
		if (i+1)*pageTokens > s.done+n || s.gen.score {
			continue
		}
		p := s.pages[i]
		full = append(full, p)
		key, ok := keyOf(s.pages[:i], s.tokens[i*pageTokens:(i+1)*pageTokens])
		if ok && c.known[key] == nil {
			p.key, p.shared = key, true
			c.known[key] = p
		}
	}
	return full
}

// drop releases all pages of s.
func (c *pageCache) drop(s *sequence) {
	for _, p := range s.pages {
		c.release(p)
	}
	s.pages, s.done = nil, 0
}
