// Theme, keyboard shortcuts, live updates and dialogs. Pages stay readable without this script.
"use strict";

document.addEventListener("alpine:init", () => {
  Alpine.data("theme", () => ({
    chosen: localStorage.getItem("mica-theme") || "system",
    next() {
      const order = ["system", "light", "dark"];
      this.chosen = order[(order.indexOf(this.chosen) + 1) % order.length];
      if (this.chosen === "system") {
        localStorage.removeItem("mica-theme");
        delete document.documentElement.dataset.theme;
      } else {
        localStorage.setItem("mica-theme", this.chosen);
        document.documentElement.dataset.theme = this.chosen;
      }
    },
    get label() { return "Theme: " + this.chosen; },
  }));

  Alpine.data("rail", () => ({
    isOpen: false,
    toggle() { this.isOpen = !this.isOpen; },
    get shown() { return this.isOpen ? "open" : ""; },
    get expanded() { return this.isOpen ? "true" : "false"; },
  }));

  Alpine.data("tail", () => ({
    isPaused: false,
    toggle() { this.isPaused = !this.isPaused; window.mica.paused = this.isPaused; if (!this.isPaused) window.mica.notify("event"); },
    get label() { return this.isPaused ? "Resume" : "Pause"; },
    get pressed() { return this.isPaused ? "true" : "false"; },
  }));
});

// -- Live updates: the stream has event names; parts that they change are reloaded, at most once a second -----------

window.mica = {
  paused: false,
  notify(kind) { document.body.dispatchEvent(new CustomEvent("mica:" + kind)); },
};

const KINDS = [
  ["belief", /^(mark$|mark\.retracted|belief\.|judgment|teaching|event\.purged)/],
  ["crystal", /^(crystal\.|mark\.retracted|event\.purged)/],
  ["trail", /^trail\./],
  ["brief", /^brief$/],
  ["failure", /\.failed$/],
];
const REST_MS = 1000;
const WORK_MS = 3000; // parts that summarize a whole day are reloaded less often

// Return a function that collects kinds of changes, and notifies the page of each once after a pause.
function batcher(rest_ms) {
  let pending = new Set();
  let timer = null;
  const flush = () => { timer = null; const kinds = pending; pending = new Set(); kinds.forEach((kind) => window.mica.notify(kind)); };
  return (kind) => { pending.add(kind); if (timer === null) timer = setTimeout(flush, rest_ms); };
}

function follow() {
  const badge = document.querySelector("[data-live]");
  const address = document.body.dataset.stream;
  if (!address) return;
  let stream = null;
  const [soon, later] = [batcher(REST_MS), batcher(WORK_MS)];
  const state = (name, text) => { badge.dataset.state = name; badge.lastElementChild.textContent = text; };
  const receive = (message) => {
    const name = JSON.parse(message.data).name || "";
    soon("event");
    later("work");
    for (const [kind, pattern] of KINDS) if (pattern.test(name)) soon(kind);
  };
  const close = () => { if (stream) stream.close(); stream = null; };
  const open = () => {
    close();
    stream = new EventSource(address);
    stream.onopen = () => { state("live", "Live"); window.mica.notify("opened"); };
    stream.onerror = () => state("away", "Disconnected, retrying");
    stream.onmessage = receive;
  };
  // A browser has six connections to a server: a hidden tab closes its stream and reopens it when it is shown.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); return; }
    open();
    ["event", "work", ...KINDS.map(([kind]) => kind)].forEach((kind) => window.mica.notify(kind));
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
  if (!document.hidden) open();
}

// -- Keys -----------------------------------------------------------------------------------------------------------

const isVisible = (element) => element.checkVisibility();  // false inside a closed <details>
const items = () => [...document.querySelectorAll("[data-item]")].filter(isVisible);

function move(step) {
  const all = items();
  if (!all.length) return;
  const here = all.indexOf(document.activeElement.closest("[data-item]"));
  const next = all[here === -1 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, here + step))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

let isPageKey = false; // "g" was pressed, so the next key chooses a page

function onKey(key) {
  if (key.ctrlKey || key.metaKey || key.altKey) return;
  if (key.target.closest("input, textarea, select, [contenteditable]")) {
    if (key.key === "Escape") key.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (isPageKey) {
    isPageKey = false;
    const link = document.querySelector(`[data-go="${CSS.escape(key.key.toLowerCase())}"]`);
    if (link) { key.preventDefault(); link.click(); }
    return;
  }
  const own = document.querySelector(`[data-key="${CSS.escape(key.key.toLowerCase())}"]`);
  if (key.key === "g") { isPageKey = true; setTimeout(() => { isPageKey = false; }, 1500); }
  else if (key.key === "j") move(1);
  else if (key.key === "k") move(-1);
  else if (key.key === "/") { const field = document.querySelector("[data-search]"); if (!field) return; field.focus(); field.select(); }
  else if (key.key === "?") document.getElementById("keys").showModal();
  else if (own && isVisible(own)) own.matches("input") ? own.focus() : own.click();
  else if (key.key === "e" || key.key === "E" || key.key === "t" || key.key === "T") actOnItem(key.key.toLowerCase());
  else return;
  key.preventDefault();
}

// E expands the focused item, T opens its causal tree.
function actOnItem(key) {
  const item = document.activeElement.closest("[data-item]");
  if (!item) return;
  if (key === "e" && item.matches("summary")) item.click();
  if (key === "t" && item.dataset.tree) location.href = item.dataset.tree;
}

// -- Dialogs, choices, errors -----------------------------------------------------------------------------------------

document.addEventListener("click", (click) => {
  const opener = click.target.closest("[data-dialog]");
  if (opener) document.getElementById(opener.dataset.dialog).showModal();
  if (click.target.closest("[data-close]")) click.target.closest("dialog").close();
  if (click.target.matches("dialog")) click.target.close();
});
document.addEventListener("change", (change) => {
  if (change.target.matches("[data-space]")) location.href = change.target.value;
});
document.addEventListener("keydown", onKey);

function toast(text, kind) {
  const box = document.createElement("div");
  box.className = "toast " + (kind || "");
  box.setAttribute("role", "status");
  box.textContent = text;
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), 8000);
}

document.addEventListener("htmx:sendError", () => toast("The server does not answer; is it running?"));
document.addEventListener("mica:notice", (notice) => toast(notice.detail.value, "good"));
document.addEventListener("mica:done", () => document.querySelectorAll("dialog[open]").forEach((box) => box.close()));
// Open the dialog once its form has arrived; an empty response opens nothing.
document.addEventListener("htmx:afterSwap", (swapped) => {
  const box = document.getElementById("act");
  if (swapped.detail.target.id === "acting" && swapped.detail.target.childElementCount && !box.open) box.showModal();
});
const ROWS_MAX = 2000; // in a tail that runs for days
// A paused tail requests nothing; otherwise it requests the events after its last row.
document.addEventListener("htmx:configRequest", (request) => {
  const tail = request.detail.elt.id === "rows" && request.detail.elt.closest("[data-tail]");
  if (!tail) return;
  if (window.mica.paused) request.preventDefault();
  else request.detail.parameters.after = tail.dataset.position;
});
document.addEventListener("htmx:afterSwap", (swapped) => {
  const tail = swapped.detail.elt.closest("[data-tail]") || swapped.detail.target.closest("[data-tail]");
  const position = swapped.detail.xhr && swapped.detail.xhr.getResponseHeader("mica-position");
  if (tail && position) {
    tail.dataset.position = position;
    const none = tail.querySelector("tr.nothing");
    if (none && none.previousElementSibling) none.remove();
    [...tail.querySelectorAll("tbody tr")].slice(ROWS_MAX).forEach((row) => row.remove());
  }
});
// -- Restore open nodes and the focus after a part is replaced --------------------------------------------------------

const opened = new Set();
const known = new Set();
let focused = null;
const place = (item) => item && (item.closest(".node") ? item.closest(".node").id : item.getAttribute("href"));

document.addEventListener("toggle", (toggled) => {
  const part = toggled.target;
  if (!part.matches("details[data-lazy]")) return;
  if (!part.open) { opened.delete(part.parentElement.id); return; }
  opened.add(part.parentElement.id);
  part.dispatchEvent(new CustomEvent("opened"));
}, true);
document.addEventListener("htmx:beforeSwap", () => {
  focused = place(document.activeElement.closest("[data-item]")) || focused;
  document.querySelectorAll("details[data-lazy][open]").forEach((part) => opened.add(part.parentElement.id)); // "toggle" events arrive late
});
document.addEventListener("htmx:afterSettle", (settled) => {
  const nodes = [...document.querySelectorAll(".node")];
  const isLive = settled.detail.elt.id === "forest" && known.size > 0;
  nodes.forEach((node) => { if (isLive && !known.has(node.id)) node.classList.add("fresh"); known.add(node.id); });
  nodes.forEach((node) => { const part = node.querySelector(":scope > details"); if (part && !part.open && opened.has(node.id)) part.open = true; });
  if (focused && document.activeElement === document.body) {
    const item = items().find((each) => place(each) === focused);
    if (item) item.focus({ preventScroll: true });
  }
});

addEventListener("DOMContentLoaded", follow);
