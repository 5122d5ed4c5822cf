// The address holds the user's place: the page is its path; filters, order and position are its query. So the place survives a reload and
// can be sent to a colleague.

/** here returns the present address. */
export function here() {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

/** link writes an address without the empty parts of the query. */
export function link(path, query = {}) {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) text.set(name, String(value));
  }
  const all = text.toString();
  return all ? path + "?" + all : path;
}

/** keyPath returns the path of a key below /api/v1. Browsers remove "." and ".." from a path, so such a key is in the query. */
export function keyPath(api, key, what = "", query = {}) {
  const path = "apis/" + encodeURIComponent(api), below = what === "" ? "" : "/" + what;
  return key === "." || key === ".." ? link(path + "/key" + below, { key, ...query }) : link(`${path}/keys/${encodeURIComponent(key)}${below}`, query);
}

/** go shows another address. With replace it adds no step to the browser's history. */
export function go(address, { replace = false } = {}) {
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  dispatchEvent(new Event("moved"));
}

/** change sets parts of the query; undefined or "" removes one. After a change of a filter the list starts at its first page. */
export function change(parts, { replace = false } = {}) {
  const { path, query } = here();
  const all = Object.fromEntries(query);
  if (!("before" in parts)) delete all.before;
  go(link(path, { ...all, ...parts }), { replace });
}

/** follow makes links within the console work without loading a new document. */
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
