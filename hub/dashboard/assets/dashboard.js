// Live updates of the dashboard: this script replaces entries of the page's lists when the
// hub sends changes. Without it every page is complete, as of the time of the request.
"use strict";
(() => {
  const beatLimit = 40000; // ms without an event until the stream is closed: the hub sends a heartbeat each 15 s
  const pollEach = 5000; // ms between polls when the browser has no connection left for a stream
  const sayEach = 3000; // ms between announcements
  const byId = (id) => document.getElementById(id);
  const body = document.body;

  // A time is shown as its age; its title is the time itself.
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const age = (seconds) => {
    const [unit, size] = units.find(([, s]) => Math.abs(seconds) >= s) || units[3];
    const n = Math.floor(Math.abs(seconds) / size) + " " + unit;
    return seconds < 0 ? "in " + n : n + " ago";
  };
  let ahead = 0; // how far this machine's clock is ahead of the hub's, in ms
  const showAges = () => {
    for (const t of document.querySelectorAll("main time")) {
      t.title ||= t.textContent;
      const text = age((Date.now() - ahead - Date.parse(t.dateTime)) / 1000);
      if (t.textContent !== text) t.textContent = text;
    }
  };
  showAges();
  setInterval(showAges, 1000);

  // After a link from another site the browser does not send a strict cookie; now it does.
  if (body.dataset.signin !== undefined) {
    fetch("/session").then((r) => { if (r.status === 204) location.replace(body.dataset.signin || "/"); }).catch(() => {});
  }
  // A page that is not available now reloads as soon as it is.
  if (body.dataset.retry !== undefined) {
    setInterval(() => fetch(location.href).then((r) => { if (r.status !== 503) location.reload(); }).catch(() => {}), 2000);
  }
  if (!body.dataset.live) return;

  let version = body.dataset.version;
  const notice = (text) => { const n = byId("notice"); if (n.textContent !== text) n.textContent = text; n.hidden = !text; };
  const state = (text) => { byId("live").textContent = text; };
  const lost = () => notice("The connection to the hub is lost. The page shows the last known state. It reconnects automatically.");

  const waiting = new Map(); // the next announcement of each entry, only the newest
  setInterval(() => {
    if (!waiting.size) return;
    byId("said").textContent = waiting.size > 3 ? `${waiting.size} entries changed.` : [...waiting.values()].join(". ") + ".";
    waiting.clear();
  }, sayEach);

  const parse = (html) => { const t = document.createElement("template"); t.innerHTML = html.trim(); return t.content.firstElementChild; };
  const listOf = (name) => document.querySelector(`[data-list="${CSS.escape(name)}"]`);
  // The focused element: a link by its address, a button by its text.
  const readFocus = () => {
    const a = document.activeElement, entry = a && a.closest("[data-list] > [id]");
    return entry && { id: entry.id, tag: a.tagName, what: a.getAttribute("href") || a.textContent };
  };
  const restoreFocus = (focus) => {
    const entry = focus && byId(focus.id);
    if (!entry || entry.contains(document.activeElement)) return;
    const links = [...entry.querySelectorAll(focus.tag)];
    const to = links.find((e) => (e.getAttribute("href") || e.textContent) === focus.what) || links[0];
    if (to) to.focus({ preventScroll: true });
  };

  const apply = (patch) => {
    const focus = readFocus(), fresh = {};
    for (const [id, html] of Object.entries(patch.html || {})) {
      const entry = fresh[id] = parse(html), old = byId(id);
      if (old) {
        const opened = old.querySelectorAll("details");
        entry.querySelectorAll("details").forEach((d, i) => { d.open = opened[i] ? opened[i].open : false; });
        old.replaceWith(entry);
      }
      entry.classList.add("changed");
      if (entry.dataset.say && (!old || old.dataset.say !== entry.dataset.say)) waiting.set(id, entry.dataset.say);
    }
    for (const [name, ids] of Object.entries(patch.lists || {})) {
      const list = listOf(name);
      if (!list) return refetch();
      const keep = new Set(ids);
      for (const e of [...list.children]) if (!keep.has(e.id)) e.remove();
      let at = list.firstElementChild;
      for (const id of ids) {
        const entry = fresh[id] || byId(id);
        if (!entry) return refetch();
        if (entry === at) at = at.nextElementSibling; else list.insertBefore(entry, at);
      }
    }
    restoreFocus(focus);
    showAges();
  };

  // Fetch the whole page: the hub does not keep the missed changes any more, or the frame changed.
  let fetching = false;
  const refetch = async () => {
    if (fetching) return;
    fetching = true;
    close();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected) return location.reload();
      if (answer.status === 503) throw new Error(answer.status); // The catch block tries again.
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = page.getElementById("main");
      if (!main) throw new Error("not a page");
      const focus = readFocus(), x = scrollX, y = scrollY;
      byId("main").replaceChildren(...main.childNodes);
      document.title = page.title;
      version = page.body.dataset.version || "";
      showAges();
      restoreFocus(focus);
      scrollTo(x, y);
      byId("said").textContent = "The page was reloaded.";
      if (page.body.dataset.live) setTimeout(open, 200); else state("");
    } catch { lost(); setTimeout(open, 2000); } finally { fetching = false; }
  };

  let stream = null, last = 0, polls = 0, polled = 0;
  const address = (what) => `${what}?page=${encodeURIComponent(location.pathname + location.search)}&from=${encodeURIComponent(version)}`;
  const close = () => { if (stream) stream.close(); stream = null; clearTimeout(polls); polls = 0; };
  const received = (e) => {
    last = Date.now();
    if (e && e.data) ahead = last - Date.parse(e.data);
    notice("");
    state("Live.");
  };
  const open = () => {
    if (stream || polls || document.hidden) return;
    last = Date.now();
    stream = new EventSource(address("/stream"));
    stream.addEventListener("beat", received);
    stream.addEventListener("patch", (e) => { received(); version = e.lastEventId; apply(JSON.parse(e.data)); });
    stream.addEventListener("resync", refetch);
    stream.addEventListener("renew", () => { close(); open(); }); // The session gets a new token.
    stream.addEventListener("signedout", () => { close(); location.reload(); });
    stream.onerror = () => {
      if (stream && stream.readyState === EventSource.CLOSED) { close(); poll(); } else lost();
    };
  };
  const poll = async () => {
    try {
      const answer = await fetch(address("/changes"));
      if (answer.status === 401) return location.reload();
      if (!answer.ok) throw new Error(answer.status);
      const changes = await answer.json();
      if (changes.resync) return refetch();
      version = changes.version;
      changes.patches.forEach(apply);
      received({ data: changes.now });
      state(`Live, each ${pollEach / 1000} s.`);
    } catch { lost(); }
    polls = setTimeout(() => { // Every twelfth time a stream is tried again.
      polls = 0;
      if (++polled % 12) { if (!document.hidden) poll(); } else open();
    }, pollEach);
  };
  setInterval(() => { // After a machine slept, its stream is dead.
    if (stream && Date.now() - last > beatLimit) { lost(); close(); open(); }
  }, 5000);
  // A hidden page uses no connection: a browser has six for plain HTTP.
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
})();
