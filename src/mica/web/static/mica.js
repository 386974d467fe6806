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
      document.dispatchEvent(new CustomEvent("mica:theme"));
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

function follow() {
  const badge = document.querySelector("[data-live]");
  const address = document.body.dataset.stream;
  if (!address) return;
  let stream = null;
  let waiting = new Set();
  let timer = null;
  const state = (name, text) => { badge.dataset.state = name; badge.lastElementChild.textContent = text; };
  const flush = () => { timer = null; const told = waiting; waiting = new Set(); told.forEach((kind) => window.mica.tell(kind)); };
  const heard = (message) => {
    const name = JSON.parse(message.data).name || "";
    waiting.add("event");
    for (const [kind, pattern] of KINDS) if (pattern.test(name)) waiting.add(kind);
    if (timer === null) timer = setTimeout(flush, REST_MS);
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
    ["event", ...KINDS.map(([kind]) => kind)].forEach((kind) => window.mica.tell(kind));
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
// A tail that is paused asks for nothing; one that was away takes what came after the last row it has.
document.addEventListener("htmx:configRequest", (request) => {
  const tail = request.detail.elt.closest("[data-tail]");
  if (!tail) return;
  if (window.mica.paused) request.preventDefault();
  else request.detail.parameters.after = tail.dataset.position;
});
document.addEventListener("htmx:afterSwap", (swapped) => {
  const tail = swapped.detail.elt.closest("[data-tail]") || swapped.detail.target.closest("[data-tail]");
  const told = swapped.detail.xhr && swapped.detail.xhr.getResponseHeader("mica-position");
  if (tail && told) {
    tail.dataset.position = told;
    [...tail.querySelectorAll("tbody tr")].slice(300).forEach((row) => row.remove());
  }
});
document.addEventListener("toggle", (toggled) => {
  if (toggled.target.matches("details[data-lazy]") && toggled.target.open) toggled.target.dispatchEvent(new CustomEvent("opened"));
}, true);

addEventListener("DOMContentLoaded", follow);
