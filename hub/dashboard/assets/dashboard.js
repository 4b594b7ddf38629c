// The live part of the dashboard: entries of the page's lists are replaced as the hub
// sends them. Without it every page is whole, and shows what was so when it was made.
"use strict";
(() => {
  const beatLimit = 40000; // ms without a word before the stream is taken for dead: the hub speaks each 15 s
  const pollEach = 5000; // ms, where the browser has no connection left for a stream
  const sayEach = 3000; // ms between announcements
  const byId = (id) => document.getElementById(id);
  const body = document.body;

  // Times are shown as ages too; the time itself stays in the text.
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const age = (seconds) => {
    const [unit, size] = units.find(([, s]) => Math.abs(seconds) >= s) || units[3];
    const n = Math.floor(Math.abs(seconds) / size) + " " + unit;
    return seconds < 0 ? "in " + n : n + " ago";
  };
  let ahead = 0; // how far this machine's clock is ahead of the hub's, in ms
  const tell = () => {
    for (const t of document.querySelectorAll("main time")) {
      t.dataset.at ||= t.textContent;
      const said = `${age((Date.now() - ahead - Date.parse(t.dateTime)) / 1000)} (${t.dataset.at})`;
      if (t.textContent !== said) t.textContent = said;
    }
  };
  tell();
  setInterval(tell, 1000);

  // A strict cookie is not sent when a link of another site leads here, but now it is.
  if (body.dataset.signin !== undefined) {
    fetch("/session").then((r) => { if (r.status === 204) location.replace(body.dataset.signin || "/"); }).catch(() => {});
  }
  // What cannot be shown at the moment is, as soon as it can be.
  if (body.dataset.retry !== undefined) {
    setInterval(() => fetch(location.href).then((r) => { if (r.status !== 503) location.reload(); }).catch(() => {}), 2000);
  }
  if (!body.dataset.live) return;

  let version = body.dataset.version;
  const notice = (text) => { const n = byId("notice"); if (n.textContent !== text) n.textContent = text; n.hidden = !text; };
  const state = (text) => { byId("live").textContent = text; };
  const gone = () => notice("The connection to the hub is lost. What is shown is what was last heard; it is tried again.");

  const waiting = new Map(); // what to say of each entry, the last word only
  setInterval(() => {
    if (!waiting.size) return;
    byId("said").textContent = waiting.size > 3 ? `${waiting.size} entries changed.` : [...waiting.values()].join(". ") + ".";
    waiting.clear();
  }, sayEach);

  const parse = (html) => { const t = document.createElement("template"); t.innerHTML = html.trim(); return t.content.firstElementChild; };
  const listOf = (name) => document.querySelector(`[data-list="${CSS.escape(name)}"]`);
  // Where the focus is, as what it is: a link by its address, a button by its text.
  const held = () => {
    const a = document.activeElement, entry = a && a.closest("[data-list] > [id]");
    return entry && { id: entry.id, tag: a.tagName, what: a.getAttribute("href") || a.textContent };
  };
  const hold = (focus) => {
    const entry = focus && byId(focus.id);
    if (!entry || entry.contains(document.activeElement)) return;
    const links = [...entry.querySelectorAll(focus.tag)];
    const to = links.find((e) => (e.getAttribute("href") || e.textContent) === focus.what) || links[0];
    if (to) to.focus({ preventScroll: true });
  };

  const apply = (patch) => {
    const focus = held(), fresh = {};
    for (const [id, html] of Object.entries(patch.html || {})) {
      const entry = fresh[id] = parse(html), old = byId(id);
      if (old) old.replaceWith(entry);
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
    hold(focus);
    tell();
  };

  // The whole page anew: when what was missed is not kept any more, or it is another.
  let fetching = false;
  const refetch = async () => {
    if (fetching) return;
    fetching = true;
    close();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected) return location.reload();
      if (answer.status === 503) throw new Error(answer.status); // It is tried again.
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = page.getElementById("main");
      if (!main) throw new Error("not a page");
      const focus = held(), x = scrollX, y = scrollY;
      byId("main").replaceChildren(...main.childNodes);
      document.title = page.title;
      version = page.body.dataset.version || "";
      tell();
      hold(focus);
      scrollTo(x, y);
      byId("said").textContent = "The page was renewed.";
      if (page.body.dataset.live) setTimeout(open, 200); else state("");
    } catch { gone(); setTimeout(open, 2000); } finally { fetching = false; }
  };

  let stream = null, last = 0, polls = 0, polled = 0;
  const address = (what) => `${what}?page=${encodeURIComponent(location.pathname + location.search)}&from=${encodeURIComponent(version)}`;
  const close = () => { if (stream) stream.close(); stream = null; clearTimeout(polls); polls = 0; };
  const heard = (e) => {
    last = Date.now();
    if (e && e.data) ahead = last - Date.parse(e.data);
    notice("");
    state("Live.");
  };
  const open = () => {
    if (stream || polls || document.hidden) return;
    last = Date.now();
    stream = new EventSource(address("/stream"));
    stream.addEventListener("beat", heard);
    stream.addEventListener("patch", (e) => { heard(); version = e.lastEventId; apply(JSON.parse(e.data)); });
    stream.addEventListener("resync", refetch);
    stream.addEventListener("signedout", () => { close(); location.reload(); });
    stream.onerror = () => {
      if (stream && stream.readyState === EventSource.CLOSED) { close(); poll(); } else gone();
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
      heard({ data: changes.now });
      state(`Live, each ${pollEach / 1000} s.`);
    } catch { gone(); }
    polls = setTimeout(() => { // Now and then a stream is tried again.
      polls = 0;
      if (++polled % 12) { if (!document.hidden) poll(); } else open();
    }, pollEach);
  };
  setInterval(() => { // A machine that slept holds a stream that is dead.
    if (stream && Date.now() - last > beatLimit) { gone(); close(); open(); }
  }, 5000);
  // A hidden page takes no connection from the others: a browser has six for plain HTTP.
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
})();
