// Where somebody is stands in the address: the page as its path, filters, order and place as its query. So it survives a reload and can
// be sent to a colleague.

/** here is the present address. */
export function here() {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

/** link writes an address; what is empty in the query is left out. */
export function link(path, query = {}) {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) text.set(name, String(value));
  }
  const all = text.toString();
  return all ? path + "?" + all : path;
}

/** keyPath is where weir answers about a key of an api. Browsers take "." and ".." out of a path, so such a key is named beside it. */
export function keyPath(api, key, what = "", query = {}) {
  const path = "apis/" + encodeURIComponent(api), below = what === "" ? "" : "/" + what;
  return key === "." || key === ".." ? link(path + "/key" + below, { key, ...query }) : link(`${path}/keys/${encodeURIComponent(key)}${below}`, query);
}

/** go shows another address. replace leaves no step behind it in the browser's history. */
export function go(address, { replace = false } = {}) {
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  dispatchEvent(new Event("moved"));
}

/** change sets parts of the query; undefined or "" takes one out. A change of a filter begins at the first page again. */
export function change(parts, { replace = false } = {}) {
  const { path, query } = here();
  const all = Object.fromEntries(query);
  if (!("before" in parts)) delete all.before;
  go(link(path, { ...all, ...parts }), { replace });
}

/** follow has links within the console lead there without a new document. */
export function follow(moved) {
  addEventListener("moved", () => moved({ back: false }));
  addEventListener("popstate", () => moved({ back: true }));
  document.addEventListener("click", (event) => {
    const a = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!a || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const to = new URL(a.href);
    if (to.origin !== location.origin || a.hasAttribute("download") || a.hasAttribute("data-plain") || a.getAttribute("href").startsWith("#")) return;
    event.preventDefault();
    go(to.pathname + to.search);
  });
}
