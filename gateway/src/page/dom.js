// Elements from data: the only place that makes any, and all that data can become here is text.
//
// Names, reasons and error texts come from configurations, clients and other machines. None of them
// may become markup, so there is no way in for markup: children are elements or text, attribute names
// are ours, and listeners are functions.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. `attributes`: null and false are left out, true is an empty attribute, functions are
 * listeners for the event they are named after. `children`: elements, or anything else as text.
 */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** One of the shapes that `index.html` draws. */
export function shape(name, level) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#shape-${name}`);
  return fill(svg, { class: "shape", "data-level": level, "aria-hidden": "true" }, [use]);
}

/** An element of a drawing. */
export function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined).map(asChild));
  return node;
}

function asChild(child) {
  return child instanceof Node ? child : String(child);
}

/** Puts a text in, if it is another one: what has not changed is not announced again. */
export function say(node, text) {
  const value = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== value) node.textContent = value;
}

/** Sets an attribute, if it is another one; null takes it away. */
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Replaces the children, unless `stamp` says that they would be the same. */
export function refill(node, stamp, make) {
  if (stamps.get(node) === stamp) return;
  stamps.set(node, stamp);
  node.replaceChildren(...[make()].flat().map(asChild));
}

const stamps = new WeakMap();
const kept = new WeakMap();

/**
 * Makes the children of `parent` those of `items`, in order, and keeps what is there: who has the
 * focus keeps it, and a screen reader is not thrown out of the list.
 *
 * `key(item)` tells items apart; `make(item)` gives an element; `update(element, item)` fills it.
 */
export function keyed(parent, items, { key, make, update }) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const before = kept.get(parent) ?? new Map();
  const after = new Map();
  for (const item of items) {
    const name = key(item);
    if (after.has(name)) continue;
    const node = before.get(name) ?? make(item);
    after.set(name, node);
    update(node, item);
  }
  for (const [name, node] of before) if (!after.has(name)) node.remove();
  let place = parent.firstElementChild;
  for (const node of after.values()) {
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  kept.set(parent, after);
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

/** A new function that runs `work` once, `wait` ms after it was first called. */
export function soon(wait, work) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      work();
    }, wait);
  };
}
