// The frame of every page: navigation, search, and whether the numbers are live.
import { h } from "./dom.js";
import { go, link } from "./route.js";
import { count } from "./format.js";
import { exact, moment } from "./time.js";
import { theme, turn } from "./theme.js";
import { help } from "./shortcuts.js";
import { pages } from "./pages/index.js";

/** head draws the head of every page. */
export function head(app, path) {
  return h("header.head", { key: "head" }, h("div", {},
    h("a.brand", { href: "/", "aria-label": "weir: overview" }, mark(), "weir"),
    h("button.menu", { type: "button", "aria-expanded": String(Boolean(app.menu)), "aria-controls": "pages", on: { click: () => app.open(!app.menu) } }, "Menu"),
    h("nav", { id: "pages", class: app.menu ? "open" : "", "aria-label": "Pages" }, h("ul", {}, pages.filter((p) => p.nav).map((p) =>
      h("li", {}, h("a", { href: p.path, "aria-current": p.path === path || p.under === path || p.over?.includes(path) ? "page" : null }, p.nav, badge(app, p)))))),
    h("div.tools", {}, search(), live(app),
      h("button.plain", { type: "button", title: "Dark or light (t)", "aria-label": `Theme: ${theme()}. Change it`, on: { click: () => { turn(); app.draw(); } } }, { system: "◐", light: "○", dark: "●" }[theme()]),
      h("button.plain", { type: "button", title: "Keyboard (?)", "aria-label": "Keyboard shortcuts", on: { click: help } }, "?"),
      app.session.login && h("button.plain", { type: "button", title: `${app.session.name}, ${app.session.role}`, on: { click: app.leave } }, "Log out"))));
}

const mark = () => h("svg", { viewBox: "0 0 32 34", "aria-hidden": "true" },
  h("path", { d: "M6 3v14a6 6 0 0 0 6 6h8a6 6 0 0 0 6-6V3", fill: "none", stroke: "var(--accent)", "stroke-width": "2.6", "stroke-linecap": "round" }),
  h("path", { d: "M8.4 11h15.2v6a3.8 3.8 0 0 1-3.8 3.8h-7.6A3.8 3.8 0 0 1 8.4 17z", fill: "var(--water)" }),
  h("circle", { cx: 16, cy: 29, r: 2.1, fill: "var(--water)" }));

function badge(app, page) {
  const n = page.count?.(app) ?? 0;
  return n > 0 && h("span.chip", { class: page.grave?.(app) ? "dead" : "" }, count(n));
}

function search() {
  return h("form", { role: "search", "aria-label": "Jobs", on: { submit: (event) => {
    event.preventDefault();
    const id = event.currentTarget.querySelector("input").value.trim();
    if (id !== "") go(link("/job", { id }));
  } } }, h("input", { id: "search", type: "search", placeholder: "Find a job  /", "aria-label": "Find a job by its id", autocomplete: "off", spellcheck: "false" }));
}

function live(app) {
  const state = app.frozen ? "frozen" : app.live;
  const text = { live: "Live", late: app.snapshot ? "Late" : "Waiting", lost: "Lost", frozen: "Frozen" }[state];
  const why = { live: "The numbers are of this second. Freeze them (f)", late: "No new numbers for 5 seconds: these are old", lost: "Cannot reach weir: trying again", frozen: "The numbers are frozen. Resume (f)" }[state];
  return h("button.plain.live", { type: "button", class: state === "live" ? "live-now" : state, title: why, "aria-pressed": String(app.frozen), "aria-label": `${text}. ${why}`, on: { click: app.freeze } }, text);
}

/** contact shows a banner if weir cannot be reached or sends no new figures, with the time of the figures. */
export function contact(app) {
  const asOf = app.snapshot && [" No figure on this page is newer than ", moment(Math.max(Date.parse(app.snapshot.at), app.answers.newest())), "."];
  if (app.live === "lost") {
    return h("div.contact.lost", { key: "contact", role: "alert" }, h("p", {}, h("strong", {}, "Cannot reach weir since ", moment(app.heard()), "."), asOf, " Check that weir runs and that this machine is connected; the page tries again by itself."));
  }
  if (app.live === "late" && app.snapshot) return h("div.contact", { key: "contact", role: "status" }, h("p", {}, h("strong", {}, "weir sends no new figures."), asOf));
  return null;
}

/** foot shows the server and the time of the numbers. */
export function foot(app) {
  const s = app.snapshot?.status;
  return h("footer.foot", { key: "foot" },
    s && h("span", {}, "as of ", exact(app.snapshot.at)),
    app.session?.role === "local" && h("span", {}, "you are not the user that weir runs as, so you can only look: ", h("code", {}, "weir help http")),
    s && h("span", {}, "server ", s.server), s && h("span", {}, "configuration ", String(s.config)));
}
