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
  // Whoever is about to say why is not disturbed.
  if (unfolded && node.contains(document.activeElement)) return;
  for (const { name } of [...node.attributes]) {
    if (!wanted.hasAttribute(name) && !(unfolded && name === "open")) node.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  if (node.nodeName !== "INPUT") merge(node, wanted);
}

function merge(parent, wanted) {
  const known = new Map([...parent.childNodes].filter(key).map((node) => [key(node), node]));
  let place = parent.firstChild;
  for (const next of [...wanted.childNodes]) {
    let node = key(next) ? known.get(key(next)) : place;
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

function listen() {
  source = new EventSource(location.pathname + location.search);
  source.addEventListener("live", (event) => {
    const parsed = new DOMParser().parseFromString(`<div id="living">${event.data}</div>`, "text/html");
    merge(living, parsed.querySelector("#living"));
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
