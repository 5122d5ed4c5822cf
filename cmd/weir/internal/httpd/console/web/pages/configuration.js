import { h } from "../dom.js";
import { change, link } from "../route.js";
import { things } from "../format.js";
import { since } from "../time.js";
import { list, post } from "../ask.js";
import { ask } from "../dialog.js";
import { empty, failed, waits, command } from "../said.js";
import { changes, proposal, trialOf } from "../proposal.js";
import { announce } from "../announce.js";

/** configuration shows the configuration in force, its history, and the changes between versions. */
export const configuration = {
  path: "/configuration", title: "Configuration", nav: "Config", key: "c",
  view(app, query) {
    const shown = app.answers.use("config", 5000), past = app.answers.use("config/history", 5000);
    const from = query.get("from"), to = query.get("to");
    const versions = list(past.value, "versions");
    const now = shown.value?.version;
    return [
      h("div.bar", {}, h("h1", {}, "Configuration", now && h("span.quiet", {}, ` version ${now}`)),
        app.operator() && !query.get("propose") && h("div.actions", {}, h("button", { type: "button", on: { click: () => change({ propose: "1" }) } }, "Propose another …"))),
      shown.error && (shown.error.status === 404 ? empty("No configuration is in force", "Describe an API in weir.yaml and put it in force:", h("code", {}, "weir config apply -f weir.yaml")) : failed(shown.error)),
      app.operator() && query.get("propose") && (shown.value !== undefined || shown.error) && [proposal(app, shown.value), trialOf(app)],
      from && to && difference(app, from, to),
      h("h2", {}, "History"),
      past.error && past.error.status !== 404 && failed(past.error),
      versions.length > 0 ? h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, "Versions, the newest first"), h("thead", {}, h("tr", {}, ["Version", "When", "Who", "From", "Changes", ""].map((n) => h("th", { scope: "col" }, n || h("span.unseen", {}, "Actions"))))),
        h("tbody", {}, versions.map((v, i) => h("tr", { key: String(v.version) },
          h("td.fit", { "data-name": "Version" }, h("span", {}, String(v.version), v.version === now && [" ", h("span.chip.good", {}, "in force")])), h("td.nowrap", { "data-name": "When" }, since(v.at, app.now())), h("td", { "data-name": "Who" }, v.who || "–"), h("td.whole", { "data-name": "From" }, v.from || "–"),
          h("td", { "data-name": "Changes" }, v.error || things(v.changes, "change")),
          h("td.fit", {}, h("span.actions.nowrap", {}, i + 1 < versions.length && !v.error && h("a.button", { href: link("/configuration", { from: versions[i + 1].version, to: v.version }), "aria-label": `Difference: what version ${v.version} changed` }, "Difference"),
            app.operator() && v.version !== now && !v.error && h("button", { type: "button", on: { click: () => rollback(app, v.version, now) } }, "Roll back …")))))))) : !past.error && waits("the history"),
      h("h2", {}, "In force"),
      shown.value ? [h("p.quiet", {}, `from ${shown.value.from || "–"}, by ${shown.value.who || "–"}, `, since(shown.value.at, app.now()), ". Secrets are in it by reference only."), h("pre", { tabindex: 0 }, shown.value.yaml)] : !shown.error && waits("the configuration"),
      command("weir config show"),
    ];
  },
};

function difference(app, from, to) {
  const asked = app.answers.use(`config/diff?from=${encodeURIComponent(from)}&to=${encodeURIComponent(to)}`);
  return h("section.card", { "aria-label": "Difference" }, h("div.bar", {}, h("h2", {}, `From version ${from} to ${to}`), h("button", { type: "button", on: { click: () => change({ from: "", to: "" }) } }, "Close")),
    asked.error ? failed(asked.error) : asked.value ? changes(asked.value.changes) : waits("the difference"));
}

async function rollback(app, version, now) {
  const state = { changes: null, error: null };
  let first = true;
  const done = await ask({
    title: `Roll back to version ${version}?`, state, grave: true, does: (s) => (s.changes ? `Apply ${things(s.changes.length, "change")}` : "Apply"), ready: (s) => s.changes !== null,
    view: (s, draw) => {
      if (first) {
        first = false;
        post("config/rollback", { version, dry_run: true }).then((told) => { s.changes = told.changes; }, (err) => { s.error = err; }).finally(draw);
      }
      return [h("p", {}, `All replicas put version ${version} in force again at once, as a new version. The file that it came from does not change.`),
        s.error ? h("div.told.bad", { role: "alert" }, h("p", {}, s.error.message)) : s.changes ? changes(s.changes) : h("p.quiet", { role: "status" }, "Comparing …")];
    },
    act: () => post("config/rollback", { version, dry_run: false }),
  });
  if (!done) return;
  announce(`Version ${version} is in force again`);
  app.answers.again("config");
}
