// Looks for news of the page and puts in what has changed, so that place, focus and opened parts stay as they are.
"use strict";
(() => {
  const seconds = Number(document.body.dataset.refresh);
  const when = document.getElementById("fresh-when");
  if (!(seconds > 0) || !when) return;
  const state = document.getElementById("fresh-state");
  const pause = document.getElementById("fresh-pause");
  let paused = false, stamp = document.body.dataset.stamp, busy = false;

  const clock = () => new Date().toTimeString().slice(0, 8);
  const say = (text) => { if (state.textContent !== text) state.textContent = text; };

  // parts are what is replaced one by one; the key of a part is the same before and after.
  const parts = (doc) => {
    const all = new Map();
    const header = doc.querySelector("body > header");
    if (header) all.set("header", header);
    doc.querySelectorAll("main > section[id]").forEach((e) => all.set(e.id, e));
    return all;
  };
  const served = new Map();
  parts(document).forEach((e, key) => served.set(key, e.outerHTML));

  const summary = (d) => (d.querySelector("summary") || d).textContent;
  const focusable = "a[href], button, input, select, summary, [tabindex]";

  const put = (key, old, fresh) => {
    const open = new Set([...old.querySelectorAll("details[open]")].map(summary));
    const scrolled = [...old.querySelectorAll(".scroll, pre")].map((e) => [e.scrollLeft, e.scrollTop]);
    const at = [...old.querySelectorAll(focusable)].indexOf(document.activeElement);
    const next = document.importNode(fresh, true);
    next.querySelectorAll("details").forEach((d) => { if (open.has(summary(d))) d.open = true; });
    old.replaceWith(next);
    [...next.querySelectorAll(".scroll, pre")].forEach((e, i) => { if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i]; });
    if (at >= 0) {
      const target = next.querySelectorAll(focusable)[at];
      if (target) target.focus({ preventScroll: true });
    }
    served.set(key, fresh.outerHTML);
  };

  const take = (doc) => {
    const now = parts(document), fresh = parts(doc);
    // What is at the top of the window stays there, whatever grows above it.
    const all = [...now.entries()];
    const anchor = all.find(([, e]) => e.getBoundingClientRect().bottom > 0);
    const top = anchor ? anchor[1].getBoundingClientRect().top : 0;
    if (JSON.stringify([...now.keys()]) !== JSON.stringify([...fresh.keys()])) {
      location.reload();
      return;
    }
    // A field that a person is filling in is not taken away; its part is put in later.
    const typing = document.activeElement && document.activeElement.matches("input, select");
    fresh.forEach((e, key) => {
      if (served.get(key) === e.outerHTML) return;
      if (typing && now.get(key).contains(document.activeElement)) return;
      put(key, now.get(key), e);
    });
    if (anchor && window.scrollY > 0) {
      const moved = parts(document).get(anchor[0]).getBoundingClientRect().top - top;
      if (moved) window.scrollBy({ left: 0, top: moved, behavior: "instant" });
    }
    document.title = doc.title;
  };

  const look = async () => {
    if (paused || busy || document.hidden) return;
    busy = true;
    try {
      const r = await fetch(location.href, { cache: "no-cache", credentials: "omit" });
      if (!r.ok) throw new Error(String(r.status));
      const tag = (r.headers.get("ETag") || "").replaceAll('"', "");
      if (!tag || tag !== stamp) {
        take(new DOMParser().parseFromString(await r.text(), "text/html"));
        stamp = tag;
      }
      when.textContent = "looked for news at " + clock();
      say("");
    } catch {
      say("The server does not answer; trying again.");
    } finally {
      busy = false;
    }
  };

  when.textContent = "looks for news every " + seconds + " s";
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    say(paused ? "Paused." : "");
    look();
  });
  document.addEventListener("visibilitychange", look);
  document.documentElement.dataset.live = "ready";
  window.steadyLook = look;
  setInterval(look, seconds * 1000);
})();
