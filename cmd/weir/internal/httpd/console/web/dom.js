// A page describes its whole content anew with every change, by plain values that h makes. patch brings the document to that
// description with the fewest changes, so that focus, selection and scrolling stay. Data enters the document only as text and as
// attributes from the list below: no markup, no script, no link to other sites.

const SVG = "http://www.w3.org/2000/svg";
const drawn = new Set(["svg", "g", "path", "rect", "circle", "line", "polyline", "polygon", "defs", "clipPath", "title", "text"]);

/** none stands for a value that there is not. A cell with nothing else is left out in a narrow window. */
export const none = "–";

/** h describes an element: "div.card.wide", attributes, children. A child that is null, false or "" is left out. */
export function h(name, attrs, ...kids) {
  const [tag, ...classes] = name.split(".");
  const { key = null, on = null, css = null, ...rest } = attrs ?? {};
  const inside = flat(kids, []);
  if (tag === "td" && inside.every((kid) => kid.text === none)) classes.push("none");
  if (classes.length > 0) rest.class = classes.join(" ") + (rest.class ? " " + rest.class : "");
  return { tag, key, on, css, attrs: rest, kids: inside };
}

/** textOf returns the text of a description, for a title or a label. Its times are of UTC. */
export const textOf = (kids) => flat([kids], []).map((kid) => kid.text ?? kid.attrs.datetime ?? textOf(kid.kids)).join("");

function flat(kids, into) {
  for (const kid of kids) {
    if (Array.isArray(kid)) flat(kid, into);
    else if (kid === null || kid === undefined || kid === false || kid === "") continue;
    else into.push(typeof kid === "object" ? kid : { text: String(kid), key: null });
  }
  return into;
}

const described = new WeakMap(); // the description that each node was made from

/** patch makes the children of an element match kids. The focus stays on its element, even if its row has moved. */
export function patch(element, kids) {
  const focused = document.activeElement;
  patchKids(element, flat([kids], []));
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

function patchKids(element, kids) {
  const keyed = new Map();
  for (const node of element.childNodes) {
    const was = described.get(node);
    if (was && was.key !== null) keyed.set(was.key, node);
  }
  let cursor = element.firstChild;
  for (const kid of kids) {
    let node = kid.key !== null ? keyed.get(kid.key) : alike(cursor, kid);
    const was = node && described.get(node);
    if (!was || was.key !== kid.key || was.tag !== kid.tag) node = null;
    if (node) update(node, was, kid);
    else node = make(kid);
    if (node === cursor) cursor = cursor.nextSibling;
    else element.insertBefore(node, cursor);
  }
  while (cursor) {
    const next = cursor.nextSibling;
    cursor.remove();
    cursor = next;
  }
}

// alike returns the node to make kid of, if kid has no key: the first one, or else the next of its tag and class. So an
// element before the others can go or come, and the others stay with the focus that one of them has.
function alike(first, kid) {
  for (let node = first; node; node = node.nextSibling) {
    const was = described.get(node);
    if (was?.key === null && was.tag === kid.tag && (node === first || was.attrs?.class === kid.attrs?.class)) return node;
  }
  return null;
}

function make(kid) {
  if (kid.text !== undefined) {
    const node = document.createTextNode(kid.text);
    described.set(node, kid);
    return node;
  }
  const node = drawn.has(kid.tag) ? document.createElementNS(SVG, kid.tag) : document.createElement(kid.tag);
  update(node, { attrs: {}, on: null, css: null }, kid);
  return node;
}

function update(node, was, kid) {
  described.set(node, kid);
  if (kid.text !== undefined) {
    if (was.text !== kid.text) node.data = kid.text;
    return;
  }
  for (const name of Object.keys(was.attrs)) if (!(name in kid.attrs)) setAttribute(node, name, null);
  for (const [name, value] of Object.entries(kid.attrs)) if (was.attrs[name] !== value) setAttribute(node, name, value);
  for (const [name, value] of Object.entries(kid.css ?? {})) if (was.css?.[name] !== value) node.style.setProperty(name, value);
  listen(node, was.on, kid.on);
  patchKids(node, kid.kids);
  if ("value" in kid.attrs && was.attrs.value !== kid.attrs.value && node.tagName === "SELECT") node.value = kid.attrs.value; // its options are there now
}

function setAttribute(node, name, value) {
  if (/^on|^style$|^srcdoc$/i.test(name)) throw new Error(`the attribute ${name} is not set`);
  if (/^(href|src|action)$/i.test(name) && value !== null && !/^[/#](?!\/)/.test(value)) throw new Error("a link leads elsewhere");
  if (name === "value" && /^(input|textarea|select)$/i.test(node.tagName)) {
    if (node.value !== (value ?? "") && node !== document.activeElement) node.value = value ?? ""; // do not interrupt typing
    return;
  }
  if (name === "checked" || name === "disabled" || name === "selected") node[name] = Boolean(value);
  else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

// listen keeps one listener for each kind of event, which calls what the newest description names.
function listen(node, was, now) {
  for (const kind of Object.keys(now ?? {})) {
    if (!was || !(kind in was)) node.addEventListener(kind, heard);
  }
  for (const kind of Object.keys(was ?? {})) {
    if (!now || !(kind in now)) node.removeEventListener(kind, heard);
  }
}

function heard(event) {
  described.get(event.currentTarget)?.on?.[event.type]?.(event);
}
