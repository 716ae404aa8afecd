// Keeps a page alive: the server sends its living part anew, and only what differs is changed, so that focus,
// selection, scrolling and what is unfolded stay as they are.
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
  const unfolded = node.nodeName === "DETAILS" && node.open;
  for (const { name } of [...node.attributes]) {
    if (!wanted.hasAttribute(name) && !(unfolded && name === "open")) node.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  if (node.nodeName !== "INPUT") merge(node, wanted);
}

function merge(parent, wanted) {
  const staying = new Set([...wanted.childNodes].map(key).filter(Boolean));
  for (const node of [...parent.childNodes]) {
    if (key(node) && !staying.has(key(node))) node.remove();
  }
  const known = new Map([...parent.childNodes].filter(key).map((node) => [key(node), node]));
  let place = parent.firstChild;
  for (const next of [...wanted.childNodes]) {
    let node = key(next) ? known.get(key(next)) : place;
    // What is moved loses the focus: rather than that, what lies before it goes.
    while (node && place && place !== node && !key(place)) {
      const after = place.nextSibling;
      place.remove();
      place = after;
    }
    if (node && same(node, next)) {
      if (node !== place) parent.insertBefore(node, place);
      alter(node, next);
    } else {
      node = document.importNode(next, true);
      parent.insertBefore(node, place);
    }
    place = node.nextSibling;
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

const living = document.querySelector("#living");
const button = document.querySelector("#live");
let source = null;
let waiting = null;

function show(html) {
  const parsed = new DOMParser().parseFromString(`<div id="living">${html}</div>`, "text/html");
  merge(living, parsed.querySelector("#living"));
}

// Whoever is about to say why is not disturbed: what is new waits until the form is folded again.
function showOrWait() {
  if (waiting === null || living.querySelector("details.act[open]")) return;
  const html = waiting;
  waiting = null;
  show(html);
}

function listen() {
  source = new EventSource(location.pathname + location.search);
  source.addEventListener("live", (event) => {
    waiting = event.data;
    showOrWait();
    document.documentElement.dataset.live = String(Number(document.documentElement.dataset.live ?? 0) + 1);
  });
  source.addEventListener("login", () => location.reload());
  button.setAttribute("aria-pressed", "true");
  button.textContent = "Live";
}

function rest() {
  source?.close();
  source = null;
  button.setAttribute("aria-pressed", "false");
  button.textContent = "Paused";
}

// What was answered to a form shows something that is shown once.
if (living && document.querySelector("[data-still]") === null) {
  button.hidden = false;
  button.addEventListener("click", () => (source ? rest() : listen()));
  addEventListener("pagehide", () => source?.close());
  living.addEventListener("toggle", showOrWait, true);
  listen();
}

addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select");
  const search = document.querySelector("#search");
  if (event.key === "/" && search && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  }
});
