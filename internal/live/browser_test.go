package live

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// browser is a headless Chromium that is spoken to over two pipes.
type browser struct {
	t    *testing.T
	in   *os.File
	mu   sync.Mutex
	next int
	wait map[int]chan wireMessage
	// told are exceptions, errors and warnings of the pages so far.
	told []string
	gone chan struct{}
}

type wireMessage struct {
	ID      int             `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Session string          `json:"sessionId"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser skips the test where there is no Chromium.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil && name != "" {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium on PATH: install one, or name it in CHROMIUM")
	}
	toR, toW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromR, fromW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync", "--disable-extensions",
		"--hide-scrollbars", "--force-color-profile=srgb", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles, cmd.Stderr, cmd.WaitDelay = []*os.File{toR, fromW}, &log, 10*time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	_, _ = toR.Close(), fromW.Close()
	b := &browser{t: t, in: toW, wait: map[int]chan wireMessage{}, gone: make(chan struct{})}
	go b.read(fromR)
	t.Cleanup(func() {
		b.write(wireMessage{}, "Browser.close", nil)
		select {
		case <-b.gone:
		case <-time.After(20 * time.Second):
		}
		cancel()
		_ = cmd.Wait() // it was told to end
		_, _ = toW.Close(), fromR.Close()
	})
	return b
}

func (b *browser) read(f *os.File) {
	defer close(b.gone)
	var buf []byte
	chunk := make([]byte, 1<<16)
	for {
		n, err := f.Read(chunk)
		if err != nil {
			return
		}
		buf = append(buf, chunk[:n]...)
		for {
			i := bytes.IndexByte(buf, 0)
			if i < 0 {
				break
			}
			var m wireMessage
			if json.Unmarshal(buf[:i], &m) == nil {
				b.take(m)
			}
			buf = buf[i+1:]
		}
	}
}

func (b *browser) take(m wireMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch m.Method {
	case "":
		if c := b.wait[m.ID]; c != nil {
			delete(b.wait, m.ID)
			c <- m
		}
	case "Runtime.exceptionThrown", "Log.entryAdded":
		b.told = append(b.told, string(m.Params))
	case "Runtime.consoleAPICalled":
		if bytes.Contains(m.Params, []byte(`"type":"error"`)) || bytes.Contains(m.Params, []byte(`"type":"warning"`)) {
			b.told = append(b.told, string(m.Params))
		}
	}
}

func (b *browser) write(m wireMessage, method string, params any) chan wireMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	c := make(chan wireMessage, 1)
	b.wait[b.next] = c
	out := map[string]any{"id": b.next, "method": method, "params": params}
	if params == nil {
		out["params"] = map[string]any{}
	}
	if m.Session != "" {
		out["sessionId"] = m.Session
	}
	data, err := json.Marshal(out)
	if err == nil {
		_, err = b.in.Write(append(data, 0))
	}
	if err != nil {
		close(c)
	}
	return c
}

// tab is a page of the browser.
type tab struct {
	*browser
	session string
}

func (b *browser) call(session, method string, params, result any) {
	b.t.Helper()
	select {
	case m, ok := <-b.write(wireMessage{Session: session}, method, params):
		if !ok || m.Error != nil {
			b.t.Fatalf("%s: %+v", method, m.Error)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-b.gone:
		b.t.Fatalf("%s: the browser is gone", method)
	case <-time.After(2 * time.Minute):
		b.t.Fatalf("%s: no answer", method)
	}
}

func (b *browser) open() *tab {
	b.t.Helper()
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var s struct {
		SessionID string `json:"sessionId"`
	}
	b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &s)
	p := &tab{b, s.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Log", "Accessibility"} {
		p.do(domain+".enable", nil, nil)
	}
	return p
}

func (p *tab) do(method string, params, result any) {
	p.t.Helper()
	p.call(p.session, method, params, result)
}

// look sets the size of the window and the colours.
func (p *tab) look(width int, scheme string) {
	p.t.Helper()
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// eval returns the value of an expression, of a promise too.
func (p *tab) eval(expression string, result any) {
	p.t.Helper()
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	p.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.Exception != nil {
		p.t.Fatalf("%.80s: %s", expression, r.Exception)
	}
	if result != nil {
		if err := json.Unmarshal(r.Result.Value, result); err != nil {
			p.t.Fatalf("%.80s gives %s: %v", expression, r.Result.Value, err)
		}
	}
}

// visit loads a page and waits until it is there.
func (p *tab) visit(address string) {
	p.t.Helper()
	p.do("Page.navigate", map[string]any{"url": address}, nil)
	p.eval(`new Promise((done) => { const wait = () => location.href !== "about:blank" && document.readyState === "complete" ? done(true) : setTimeout(wait, 10); wait(); })`, nil)
}

// until makes the page look for news until a part of it has a text; a look that is under way already is waited for so.
func (p *tab) until(part, text string) {
	p.t.Helper()
	var there bool
	p.eval(fmt.Sprintf(`new Promise((done) => { const end = Date.now() + 60000; const wait = async () => { await window.steadyLook();
	  const there = document.querySelector(%q).textContent.includes(%q); there || Date.now() > end ? done(there) : setTimeout(wait, 10); }; wait(); })`, part, text), &there)
	if !there {
		p.t.Fatalf("%s never has the text %q", part, text)
	}
}

// key presses a key.
func (p *tab) key(name string) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.do("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": map[string]int{"Tab": 9, "Enter": 13}[name]}, nil)
	}
}

// shoot keeps a picture of the page where STEADY_SHOTS names a directory.
func (p *tab) shoot(name string) {
	p.t.Helper()
	dir := os.Getenv("STEADY_SHOTS")
	if dir == "" {
		return
	}
	var shot struct {
		Data string `json:"data"`
	}
	p.do("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), data, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// complaints are what the pages told since the last call.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.told
	b.told = nil
	return out
}

// contrast finds texts whose colour is too near to what is behind it (WCAG 2, 1.4.3: 4.5, or 3 for large text).
const contrast = `(() => {
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const lum = (c) => { const f = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const behind = (e) => { const stack = []; for (let n = e; n; n = n.parentElement) stack.push(parse(getComputedStyle(n).backgroundColor)); return stack.reverse().reduce((b, c) => over(c, b), [255, 255, 255, 1]); };
  const bad = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; (n = walk.nextNode());) {
    const e = n.parentElement;
    if (!n.textContent.trim() || e.closest("svg title, script, .vh, .skip") || !e.checkVisibility()) continue;
    const style = getComputedStyle(e), back = behind(e);
    const color = e.closest("svg") ? parse(style.fill === "none" ? style.color : style.fill) : parse(style.color);
    const a = lum(over(color, back)), b = lum(back);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.add(e.tagName + "." + e.className + " " + ratio.toFixed(2) + " " + n.textContent.trim().slice(0, 30));
  }
  return [...bad].slice(0, 10);
})()`

// wide finds what makes the page wider than the window.
const wide = `(() => {
  const w = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= w) return [];
  return [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > w + 1 && !e.parentElement.closest(".scroll, pre, svg")).map((e) => e.tagName + "." + e.className).slice(0, 10).concat("page of " + document.documentElement.scrollWidth + " in " + w);
})()`

// nameless finds controls that a screen reader could not name, and regions that cannot be reached by keyboard.
const nameless = `(() => {
  const named = (e) => (e.getAttribute("aria-label") || e.textContent || e.title || "").trim() || (e.labels && e.labels.length && e.labels[0].textContent.trim());
  const bad = [...document.querySelectorAll("a[href], button, select, input:not([type=hidden]), [role=region]")].filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 80));
  document.querySelectorAll(".scroll").forEach((e) => { if (e.tabIndex < 0) bad.push("not reachable: " + e.outerHTML.slice(0, 80)); });
  document.querySelectorAll("svg[role=img]").forEach((e) => { if (!e.querySelector("title")) bad.push("no title: " + e.outerHTML.slice(0, 80)); });
  document.querySelectorAll("th:not([scope])").forEach((e) => bad.push("no scope: " + e.outerHTML));
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((e) => Number(e.tagName[1]));
  levels.forEach((l, i) => { if (i && l > levels[i - 1] + 1) bad.push("a heading of rank " + l + " follows one of rank " + levels[i - 1]); });
  return bad;
})()`

// TestBrowser drives the pages in a browser, one for all parts of the test.
func TestBrowser(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *browser)
	}{
		{"pages are sound and readable", soundPages},
		{"the checks of this test find what is wrong", checksFind},
		{"a refresh keeps place, focus and open parts", refreshKeeps},
		{"the keyboard reaches everything", keyboardReaches},
	} {
		t.Run(part.name, func(t *testing.T) {
			b.t = t
			part.run(t, b)
		})
	}
}

// web serves two runs to the browser.
func web(t *testing.T) (*fixture, *httptest.Server) {
	t.Helper()
	f, s := two(t)
	w := httptest.NewServer(s)
	t.Cleanup(w.Close)
	return f, w
}

var checks = map[string]string{"contrast": contrast, "overflow": wide, "names": nameless}

// Every kind of page loads without a complaint, in both colour schemes and at the widths of a phone and of a desk, with
// enough contrast, no overflow and names for all controls.
func soundPages(t *testing.T, b *browser) {
	_, w := web(t)
	p := b.open()
	for i, path := range []string{
		"/", "/compare?a=alpha&b=beta", "/runs/alpha/", "/runs/alpha/trajectories", "/runs/alpha/groups/2", "/runs/alpha/groups/2/0", "/runs/alpha/groups/2/2",
		"/runs/alpha/groups/8/3?colour=version", "/runs/alpha/groups/2/1?colour=probability", "/runs/alpha/groups/2/3?view=table", "/runs/alpha/ledger", "/runs/alpha/failures", "/nowhere",
	} {
		p.look(1280, "dark")
		p.visit(w.URL + path)
		for scheme, width := range map[string]int{"dark": 1280, "light": 360} {
			p.look(width, scheme)
			for what, js := range checks {
				var bad []string
				if p.eval(js, &bad); len(bad) > 0 {
					t.Errorf("%s, %s, %d wide, %s:\n  %s", path, scheme, width, what, strings.Join(bad, "\n  "))
				}
			}
			p.shoot(fmt.Sprintf("%02d-%s-%d", i, scheme, width))
		}
		for _, c := range b.complaints() {
			if path != "/nowhere" { // that it is not there is told
				t.Errorf("%s: the browser says %s", path, c)
			}
		}
	}
}

// A check that could find nothing would be none.
func checksFind(t *testing.T, b *browser) {
	_, w := web(t)
	p := b.open()
	p.look(1000, "light")
	for what, spoil := range map[string]string{
		"contrast": `document.querySelector("h1").style.color = "#bbb"`,
		"overflow": `document.querySelector("main").style.cssText = "width: 3000px; max-width: none"`,
		"names":    `document.querySelector("main").append(document.createElement("button"))`,
	} {
		p.visit(w.URL + "/")
		var before, after []string
		p.eval(checks[what], &before)
		p.eval(spoil, nil)
		if p.eval(checks[what], &after); len(before) != 0 || len(after) == 0 {
			t.Errorf("%s: %q before and %q after it was spoilt", what, before, after)
		}
	}
	b.complaints()
	p.eval(`fetch("http://127.0.0.1:1/").catch(() => null)`, nil)
	p.eval(`new Promise((done) => setTimeout(done, 0))`, nil)
	if c := b.complaints(); len(c) == 0 || !strings.Contains(strings.Join(c, ""), "Content Security Policy") {
		t.Errorf("a request to elsewhere: the browser says %q", c)
	}
}

// What a person does with a page survives its refresh: place, focus and opened parts.
func refreshKeeps(t *testing.T, b *browser) {
	f, w := web(t)
	p := b.open()
	p.look(1000, "light")
	p.visit(w.URL + "/runs/alpha/")
	var state struct {
		Ready  string
		Top    float64
		Focus  string
		Open   bool
		Steps  string
		Status string
	}
	const look = `(() => ({ Ready: document.documentElement.dataset.live || "", Top: Math.round(document.getElementById("ledger").getBoundingClientRect().top),
	  Focus: document.activeElement.getAttribute("aria-label") || document.activeElement.tagName, Open: document.querySelector("#metrics details").open,
	  Steps: document.querySelector("body > header").textContent, Status: document.getElementById("fresh-state").textContent }))()`
	p.eval(`document.querySelector("#metrics details").open = true; document.querySelector("#ledger .scroll").focus({preventScroll: true}); document.getElementById("ledger").scrollIntoView({behavior: "instant"});`, nil)
	p.eval(look, &state)
	before := state
	if state.Ready != "ready" || !state.Open || state.Focus != "Groups by fate" || !strings.Contains(state.Steps, "3 of 10") {
		t.Fatalf("before: %+v", state)
	}
	f.validation(4, 6)
	f.step(4)
	p.until("body > header", "4 of 10")
	p.eval(look, &state)
	if !strings.Contains(state.Steps, "4 of 10") || !state.Open || state.Focus != before.Focus || state.Status != "" {
		t.Errorf("after a refresh: %+v, before: %+v", state, before)
	}
	if d := state.Top - before.Top; d < -2 || d > 2 {
		t.Errorf("the ledger moved by %v pixels", d)
	}
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("the browser says %q", c)
	}
	// Paused, nothing changes; a server that is gone is told.
	p.eval(`document.getElementById("fresh-pause").click()`, nil)
	f.step(5)
	p.eval("window.steadyLook()", nil)
	if p.eval(look, &state); !strings.Contains(state.Steps, "4 of 10") || state.Status != "Paused." {
		t.Errorf("paused: %+v", state)
	}
	p.eval(`document.getElementById("fresh-pause").click()`, nil)
	p.until("body > header", "5 of 10")
	w.Close()
	p.until("#fresh-state", "does not answer")
}

// The first tab leads to the link that skips the bar; every stop is visible and has a ring.
func keyboardReaches(t *testing.T, b *browser) {
	_, w := web(t)
	p := b.open()
	p.look(1000, "light")
	for _, path := range []string{"/", "/runs/alpha/trajectories?step=2", "/runs/alpha/groups/2/3", "/compare?a=alpha&b=beta"} {
		p.visit(w.URL + path)
		var all int
		p.eval(`document.querySelectorAll("a[href], button:not([hidden]), select, input:not([type=hidden]), summary, [tabindex='0']").length`, &all)
		seen := map[string]bool{}
		for i := range all {
			p.key("Tab")
			var at struct {
				What    string
				Ring    bool
				Visible bool
			}
			p.eval(`(() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect(); window.steps = (window.steps || new Map()); if (!window.steps.has(e)) window.steps.set(e, window.steps.size);
			  return { What: window.steps.get(e) + " " + e.tagName + " " + e.textContent.slice(0, 30), Ring: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0, Visible: r.width > 0 && r.right > 0 && r.bottom > 0 }; })()`, &at)
			if seen[at.What] = true; !at.Ring || !at.Visible {
				t.Errorf("%s: stop %d, %+v", path, i+1, at)
			}
			if i == 0 && !strings.Contains(at.What, "Skip to the content") {
				t.Errorf("%s: the first stop is %s", path, at.What)
			}
		}
		if len(seen) != all {
			t.Errorf("%s: %d of %d controls were reached", path, len(seen), all)
		}
	}
}
