// What pages do besides links and forms: the theme, keys, the log as it grows, dialogs. No page needs it to be read.
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
    get said() { return "Theme: " + this.chosen; },
  }));

  Alpine.data("rail", () => ({
    isOpen: false,
    toggle() { this.isOpen = !this.isOpen; },
    get shown() { return this.isOpen ? "open" : ""; },
    get expanded() { return this.isOpen ? "true" : "false"; },
  }));

  Alpine.data("tail", () => ({
    isPaused: false,
    toggle() { this.isPaused = !this.isPaused; window.mica.paused = this.isPaused; if (!this.isPaused) window.mica.tell("event"); },
    get said() { return this.isPaused ? "Go on" : "Pause"; },
    get pressed() { return this.isPaused ? "true" : "false"; },
  }));
});

// -- The log as it grows: names only; a page asks again for what it shows, at most once a second ------------------

window.mica = {
  paused: false,
  tell(kind) { document.body.dispatchEvent(new CustomEvent("mica:" + kind)); },
};

const KINDS = [
  ["crystal", /^(crystal\.|mark\.retracted|event\.purged)/],
  ["trail", /^trail\./],
  ["brief", /^brief$/],
  ["failure", /\.failed$/],
];
const REST_MS = 1000;
const WORK_MS = 3000; // parts that count a whole day rest longer

function telling(rest_ms) {
  let waiting = new Set();
  let timer = null;
  const flush = () => { timer = null; const told = waiting; waiting = new Set(); told.forEach((kind) => window.mica.tell(kind)); };
  return (kind) => { waiting.add(kind); if (timer === null) timer = setTimeout(flush, rest_ms); };
}

function follow() {
  const badge = document.querySelector("[data-live]");
  const address = document.body.dataset.stream;
  if (!address) return;
  let stream = null;
  const [soon, later] = [telling(REST_MS), telling(WORK_MS)];
  const state = (name, text) => { badge.dataset.state = name; badge.lastElementChild.textContent = text; };
  const heard = (message) => {
    const name = JSON.parse(message.data).name || "";
    soon("event");
    later("work");
    for (const [kind, pattern] of KINDS) if (pattern.test(name)) soon(kind);
  };
  const close = () => { if (stream) stream.close(); stream = null; };
  const open = () => {
    close();
    stream = new EventSource(address);
    stream.onopen = () => { state("live", "Live"); window.mica.tell("opened"); };
    stream.onerror = () => state("away", "Server away, trying again");
    stream.onmessage = heard;
  };
  // A browser has six connections to a server: a tab that nobody sees gives its own back, and asks again when it is seen.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); return; }
    open();
    ["event", "work", ...KINDS.map(([kind]) => kind)].forEach((kind) => window.mica.tell(kind));
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (shown) => { if (shown.persisted) open(); });
  if (!document.hidden) open();
}

// -- Keys -----------------------------------------------------------------------------------------------------------

const shown = (element) => element.checkVisibility();  // also of what lies in a closed part
const items = () => [...document.querySelectorAll("[data-item]")].filter(shown);

function move(step) {
  const all = items();
  if (!all.length) return;
  const here = all.indexOf(document.activeElement.closest("[data-item]"));
  const next = all[here === -1 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, here + step))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

let isGoing = false;

function pressed(key) {
  if (key.ctrlKey || key.metaKey || key.altKey) return;
  if (key.target.closest("input, textarea, select, [contenteditable]")) {
    if (key.key === "Escape") key.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (isGoing) {
    isGoing = false;
    const link = document.querySelector(`[data-go="${CSS.escape(key.key.toLowerCase())}"]`);
    if (link) { key.preventDefault(); link.click(); }
    return;
  }
  const own = document.querySelector(`[data-key="${CSS.escape(key.key.toLowerCase())}"]`);
  if (key.key === "g") { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); }
  else if (key.key === "j") move(1);
  else if (key.key === "k") move(-1);
  else if (key.key === "/") { const field = document.querySelector("[data-search]"); if (!field) return; field.focus(); field.select(); }
  else if (key.key === "?") document.getElementById("keys").showModal();
  else if (own && shown(own)) own.matches("input") ? own.focus() : own.click();
  else if (key.key === "e" || key.key === "E" || key.key === "t" || key.key === "T") actOnItem(key.key.toLowerCase());
  else return;
  key.preventDefault();
}

// E expands what is chosen, T shows the causal tree of it.
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
document.addEventListener("keydown", pressed);

function toast(text, kind) {
  const box = document.createElement("div");
  box.className = "toast " + (kind || "");
  box.setAttribute("role", "status");
  box.textContent = text;
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), 8000);
}

document.addEventListener("htmx:sendError", () => toast("The server does not answer; is it running?"));
document.addEventListener("mica:said", (said) => toast(said.detail.value, "good"));
document.addEventListener("mica:done", () => document.querySelectorAll("dialog[open]").forEach((box) => box.close()));
// What asks first is shown when it is there; what is done leaves nothing to show.
document.addEventListener("htmx:afterSwap", (swapped) => {
  const box = document.getElementById("act");
  if (swapped.detail.target.id === "acting" && swapped.detail.target.childElementCount && !box.open) box.showModal();
});
const ROWS_MAX = 2000; // of a tail that runs for days
// A tail that is paused asks for nothing; one that was away takes what came after the last row it has.
document.addEventListener("htmx:configRequest", (request) => {
  const tail = request.detail.elt.id === "rows" && request.detail.elt.closest("[data-tail]");
  if (!tail) return;
  if (window.mica.paused) request.preventDefault();
  else request.detail.parameters.after = tail.dataset.position;
});
document.addEventListener("htmx:afterSwap", (swapped) => {
  const tail = swapped.detail.elt.closest("[data-tail]") || swapped.detail.target.closest("[data-tail]");
  const told = swapped.detail.xhr && swapped.detail.xhr.getResponseHeader("mica-position");
  if (tail && told) {
    tail.dataset.position = told;
    const none = tail.querySelector("tr.nothing");
    if (none && none.previousElementSibling) none.remove();
    [...tail.querySelectorAll("tbody tr")].slice(ROWS_MAX).forEach((row) => row.remove());
  }
});
// -- What was open and where one stood, when a part is drawn anew ---------------------------------------------------

const opened = new Set();
const known = new Set();
let stood = null;
const place = (item) => item && (item.closest(".node") ? item.closest(".node").id : item.getAttribute("href"));

document.addEventListener("toggle", (toggled) => {
  const part = toggled.target;
  if (!part.matches("details[data-lazy]")) return;
  if (!part.open) { opened.delete(part.parentElement.id); return; }
  opened.add(part.parentElement.id);
  part.dispatchEvent(new CustomEvent("opened"));
}, true);
document.addEventListener("htmx:beforeSwap", () => {
  stood = place(document.activeElement.closest("[data-item]")) || stood;
  document.querySelectorAll("details[data-lazy][open]").forEach((part) => opened.add(part.parentElement.id)); // "toggle" comes late
});
document.addEventListener("htmx:afterSettle", (settled) => {
  const nodes = [...document.querySelectorAll(".node")];
  const isLive = settled.detail.elt.id === "forest" && known.size > 0;
  nodes.forEach((node) => { if (isLive && !known.has(node.id)) node.classList.add("fresh"); known.add(node.id); });
  nodes.forEach((node) => { const part = node.querySelector(":scope > details"); if (part && !part.open && opened.has(node.id)) part.open = true; });
  if (stood && document.activeElement === document.body) {
    const item = items().find((each) => place(each) === stood);
    if (item) item.focus({ preventScroll: true });
  }
});

addEventListener("DOMContentLoaded", follow);
