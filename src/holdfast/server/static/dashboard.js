// Updates a live page: the server sends the live part again, and only the nodes that differ are changed, so that
// focus, selection, scrolling and open details stay as they are.
"use strict";

const key = (node) => (node.nodeType === Node.ELEMENT_NODE && node.id) || null;

function same(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && key(one) === key(other);
}

function alter(node, wanted) {
  if (node.nodeType !== Node.ELEMENT_NODE) {
    if (node.nodeValue !== wanted.nodeValue) node.nodeValue = wanted.nodeValue;
    return;
  }
  const isOpen = node.nodeName === "DETAILS" && node.open;
  for (const { name } of [...node.attributes]) {
    if (!wanted.hasAttribute(name) && !(isOpen && name === "open")) node.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  if (node.nodeName !== "INPUT") merge(node, wanted);
}

function isSpace(node) {
  return node?.nodeType === Node.TEXT_NODE && !node.nodeValue.trim();
}

function removed(node) {
  const after = node.nextSibling;
  node.remove();
  return after;
}

function merge(parent, wanted) {
  const staying = new Set([...wanted.childNodes].map(key).filter(Boolean));
  for (const node of [...parent.childNodes]) {
    if (key(node) && !staying.has(key(node))) node.remove();
  }
  const known = new Map([...parent.childNodes].filter(key).map((node) => [key(node), node]));
  let current = parent.firstChild;
  for (const next of [...wanted.childNodes]) {
    let node = key(next) ? known.get(key(next)) : current;
    // A node that is moved loses the focus: remove the nodes before it instead.
    while (node && current && current !== node && !key(current)) current = removed(current);
    // Space between elements may differ between the page and an update of it: the elements are still the same.
    while (!key(next) && next.nodeType === Node.ELEMENT_NODE && isSpace(current)) node = current = removed(current);
    if (node && same(node, next)) {
      if (node !== current) parent.insertBefore(node, current);
      alter(node, next);
    } else {
      node = document.importNode(next, true);
      parent.insertBefore(node, current);
    }
    current = node.nextSibling;
  }
  while (current) current = removed(current);
}

// Times are sent in UTC and shown in the zone of the browser.
const TIMES = {
  second: { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
  minute: { hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  day: { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" },
};

function localize(root) {
  for (const node of root.querySelectorAll("[data-local]")) {
    const at = new Date(node.getAttribute("datetime"));
    if (!Number.isNaN(at.getTime())) node.textContent = new Intl.DateTimeFormat([], TIMES[node.dataset.local]).format(at);
  }
}

const livePart = document.querySelector("#live-part");
const button = document.querySelector("#live-button");
let source = null;
let pending = null;
localize(document);

function show(html) {
  const parsed = new DOMParser().parseFromString(`<div id="live-part">${html}</div>`, "text/html");
  localize(parsed);
  merge(livePart, parsed.querySelector("#live-part"));
}

// While a form is open, updates wait until it is closed.
function showOrWait() {
  if (pending === null || livePart.querySelector("details.action[open]")) return;
  const html = pending;
  pending = null;
  show(html);
}

function listen() {
  source = new EventSource(location.pathname + location.search);
  source.addEventListener("live", (event) => {
    pending = event.data;
    showOrWait();
    document.documentElement.dataset.live = String(Number(document.documentElement.dataset.live ?? 0) + 1);
  });
  source.addEventListener("login", () => location.reload());
  button.setAttribute("aria-pressed", "true");
  button.textContent = "Live";
}

function pause() {
  source?.close();
  source = null;
  button.setAttribute("aria-pressed", "false");
  button.textContent = "Paused";
}

// The response to a form may show something that is shown only once: do not update it.
if (livePart && document.querySelector("[data-still]") === null) {
  button.hidden = false;
  button.addEventListener("click", () => (source ? pause() : listen()));
  addEventListener("pagehide", () => source?.close());
  livePart.addEventListener("toggle", showOrWait, true);
  listen();
}

// On a narrow screen the sections scroll sideways: show the current one.
document.querySelector(".bar nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// Selects all tasks of the page. Without scripts, "all that match" does it.
document.addEventListener("change", (event) => {
  if (event.target.id !== "tick-all") return;
  for (const box of document.querySelectorAll('input[form="bulk"]')) box.checked = event.target.checked;
});

// A second click on a button must not act twice.
let submitted = new WeakSet();
addEventListener("pageshow", () => (submitted = new WeakSet()));
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (submitted.has(event.target)) event.preventDefault();
  submitted.add(event.target);
});

// An action on many tasks that takes several requests continues by itself.
document.querySelector("#continue")?.requestSubmit();

addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select");
  const search = document.querySelector("#search");
  if (event.key === "/" && search && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  }
});
