// Live updates of the dashboard: this script replaces entries of the page's lists when the
// hub sends changes. It also adds keys, applies filters at once, and copies texts. Without it
// every page is complete, as of the time of the request.
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
  setInterval(showAges, 1000);

  // Filters are applied when one changes. The address has no empty parameters.
  document.documentElement.classList.add("scripted");
  const narrow = matchMedia("(max-width: 47.9rem)");
  if (!CSS.supports("selector(::details-content)") && !narrow.matches) { // An older browser cannot show them by the style sheet.
    for (const d of document.querySelectorAll("details.fold")) d.open = true;
  }
  const storage = (kind) => { try { return window[kind]; } catch { return null; } }; // A browser may refuse it.
  const kept = storage("localStorage"), once = storage("sessionStorage");
  const formOf = (field) => field.form && field.form.dataset.apply !== undefined ? field.form : null;
  document.addEventListener("formdata", (e) => {
    for (const [name, value] of [...e.formData]) if (value === "") e.formData.delete(name);
  });
  document.addEventListener("change", (e) => {
    const form = formOf(e.target);
    if (form) setTimeout(() => { // By then the focus is where it goes.
      const to = document.activeElement;
      if (to !== body && !form.contains(to)) return; // The user follows a link: the text stays.
      once?.setItem("field", (form.contains(to) && to.name) || e.target.name);
      form.requestSubmit();
    });
  });
  const field = once?.getItem("field");
  once?.removeItem("field");
  const focused = field && document.querySelector(`form[data-apply] [name="${CSS.escape(field)}"]`);
  if (focused) focused.focus({ preventScroll: true });

  // Keys: the search, and the squares of a map. A user can turn off the key that is a character.
  const keysOff = () => kept?.getItem("keys") === "off";
  const squares = () => [...document.querySelectorAll("[data-map] a[href]")];
  let square = ""; // the address of the square that is in the tab order
  const rove = () => {
    const all = squares(), at = all.find((a) => a.getAttribute("href") === square) || all[0];
    for (const a of all) if (a.tabIndex !== (a === at ? 0 : -1)) a.tabIndex = a === at ? 0 : -1;
  };
  const middle = (r) => r.left + r.width / 2;
  // The square in the next row in a direction (1 is down) that is nearest to this one.
  const inRow = (all, from, direction) => {
    const box = from.getBoundingClientRect();
    const rows = all.map((a) => [a, a.getBoundingClientRect()]).filter(([, r]) => direction * (r.top - box.top) >= box.height / 2);
    const next = Math.min(...rows.map(([, r]) => direction * r.top));
    const row = rows.filter(([, r]) => direction * r.top < next + box.height / 2);
    row.sort(([, a], [, b]) => Math.abs(middle(a) - middle(box)) - Math.abs(middle(b) - middle(box)));
    return row.length ? row[0][0] : null;
  };
  const moves = {
    ArrowRight: (all, at) => all[at + 1], ArrowLeft: (all, at) => all[at - 1], Home: (all) => all[0], End: (all) => all[all.length - 1],
    ArrowDown: (all, at) => inRow(all, all[at], 1), ArrowUp: (all, at) => inRow(all, all[at], -1),
  };
  document.addEventListener("focusin", (e) => {
    if (!e.target.matches("[data-map] a[href]")) return;
    square = e.target.getAttribute("href");
    rove();
  });
  addEventListener("keydown", (e) => {
    const on = e.target, modified = e.ctrlKey || e.metaKey;
    if (e.altKey || e.isComposing || !on.matches || on.matches("input, select, textarea")) return;
    const all = !modified && !e.shiftKey && moves[e.key] && on.matches("[data-map] a[href]") ? squares() : null;
    const find = byId("find");
    if (all) {
      const to = moves[e.key](all, all.indexOf(on));
      if (to) to.focus();
      e.preventDefault();
    } else if (find && (modified ? !e.shiftKey && e.key.toLowerCase() === "k" : e.key === "/" && !keysOff())) {
      find.focus();
      find.select();
      e.preventDefault();
    }
  });
  document.addEventListener("change", (e) => {
    if (e.target.dataset.keys !== undefined) kept?.setItem("keys", e.target.checked ? "on" : "off");
  });

  // A button with data-copy copies this text. The clipboard needs HTTPS or localhost.
  document.addEventListener("click", async (e) => {
    const button = e.target.closest("button[data-copy]");
    if (!button) return;
    const name = button.textContent;
    let said = "Copied";
    try { await navigator.clipboard.writeText(button.dataset.copy); } catch { said = "Not copied: select the text"; }
    button.textContent = byId("said").textContent = said;
    setTimeout(() => { button.textContent = name; }, 2000);
  });

  // What the script adds to the content of the page, after each change of it.
  const settle = () => {
    showAges();
    rove();
    for (const box of document.querySelectorAll("[data-keys]")) box.checked = !keysOff();
  };
  settle();

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
    const focus = readFocus(), fresh = {}, at = squares().indexOf(document.activeElement);
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
      let next = list.firstElementChild;
      for (const id of ids) {
        const entry = fresh[id] || byId(id);
        if (!entry) return refetch();
        if (entry === next) next = next.nextElementSibling; else list.insertBefore(entry, next);
      }
    }
    settle();
    restoreFocus(focus);
    const left = at < 0 || document.activeElement !== body ? [] : squares(); // The focused square was removed.
    if (left.length) left[Math.min(at, left.length - 1)].focus({ preventScroll: true });
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
      settle();
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
