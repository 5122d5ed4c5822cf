import { h } from "../dom.js";
import { change, link } from "../route.js";
import { brief, count } from "../format.js";
import { moment, since } from "../time.js";
import { list } from "../ask.js";
import { choice, filterField } from "../table.js";
import { shadeOf } from "../cause.js";
import { empty, failed, waits, command, quoted } from "../said.js";

const perPage = 50;
const names = ["state", "api", "key", "status", "id", "since", "until"];
const states = ["waiting", "calling", "polling", "done", "dead"];

/** jobs is the page of jobs in every state, the newest first. */
export const jobs = {
  path: "/jobs", title: "Jobs", nav: "Jobs", key: "j", over: ["/job"],
  view(app, query) {
    const picked = Object.fromEntries(names.filter((n) => query.get(n)).map((n) => [n, query.get(n)])), before = query.get("before") ?? "";
    const asked = app.answers.use("jobs?" + new URLSearchParams({ ...picked, limit: perPage, ...(before ? { after: before } : {}) }), before ? 15000 : 2000);
    const page = asked.value, rows = list(page, "jobs"), any = Object.keys(picked).length > 0;
    return [
      h("h1", {}, "Jobs"),
      tabs(picked),
      filters(app, picked),
      asked.error && failed(asked.error),
      page && notes(app, page),
      !page ? !asked.error && waits("the jobs")
        : rows.length > 0 ? [table(app, rows), pages(before, page.next)]
          : page.next ? [empty("No job matches so far", "weir has looked through some of the waiting jobs."), pages(before, page.next)]
            : any || before ? [empty("No job matches", h("button", { type: "button", on: { click: clear } }, "Show all jobs")), pages(before, page.next)]
              : empty("No jobs", "Jobs are listed here as soon as a producer submits one: those that wait, those that are being called, and those that have ended.", h("code", {}, "weir help submission")),
      command(["weir jobs", ...names.filter((n) => picked[n]).map((n) => `--${n} ${quoted(picked[n])}`)].join(" ")),
    ];
  },
};

const clear = () => change(Object.fromEntries([...names, "before"].map((n) => [n, ""])));

// tabs choose a state. They are links, so that a state has an address.
function tabs(picked) {
  return h("nav.actions.pages", { key: "states", "aria-label": "States of jobs" }, ["", ...states].map((s) =>
    h("a.button", { key: s || "all", href: link("/jobs", { ...picked, state: s }), "aria-current": (picked.state ?? "") === s ? "true" : null, "data-state": s || "all" }, s === "" ? "all" : named[s])));
}

const named = { waiting: "waiting", calling: "being called", polling: "polled", done: "done", dead: "dead letters" };
const shade = { waiting: "calm", calling: "held", polling: "good", done: "good", dead: "dead" };

function filters(app, picked) {
  const apis = app.snapshot?.status.apis.map((a) => a.api) ?? [];
  if (picked.api && !apis.includes(picked.api)) apis.push(picked.api);
  return h("div.filters", { key: "filters", role: "search", "aria-label": "Filter jobs" },
    choice("api", "Api", picked.api ?? "", apis), filterField("key", "Key", picked.key ?? ""),
    filterField("id", "Part of the id", picked.id ?? ""), filterField("status", "Status", picked.status ?? "", { placeholder: "503, 5xx", narrow: true }),
    filterField("since", "Since", picked.since ?? "", { placeholder: "2h, 1d, a time", narrow: true }), filterField("until", "Until", picked.until ?? "", { placeholder: "1h", narrow: true }),
    Object.keys(picked).length > 0 && h("button", { type: "button", on: { click: clear } }, "Clear"));
}

// notes say what the list cannot have.
function notes(app, page) {
  return [
    page.building ? h("p.quiet", { role: "status" }, "weir began lately and still reads what it has recorded. Jobs that ended are listed since ", moment(page.since, app.now()), ".")
      : page.since && h("p.quiet", {}, "Jobs that ended are listed since ", moment(page.since, app.now()), ": weir keeps no more of them in memory. Older ones are found by their id."),
    page.behind > 0 && h("p.quiet", { role: "status" }, `The newest ${count(page.behind)} records are still being read.`),
    page.missing > 0 && h("div.told.warn", {}, h("p", {}, `${count(page.missing)} records of calls are lost or cannot be read: jobs that were done may be missing here.`)),
    (page.silent ?? []).map((s) => h("div.told.warn", {}, h("p", {}, s))),
  ];
}

function table(app, rows) {
  return h("div.table", {}, h("table.folds", {}, h("caption.unseen", {}, "Jobs, the newest first"),
    h("thead", {}, h("tr", {}, ["Job", "State", "Since", "Api", "Key", "Calls", "Status", "Took"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((j) => h("tr", { key: [j.api, j.key, j.job, j.state, j.at].join("\n"), "data-job": j.job },
      h("td.whole", { "data-name": "Job" }, j.job ? h("a", { href: link("/job", { id: j.job }) }, j.job) : j.letter ? h("a", { href: link("/letter", { seq: j.letter }) }, `letter ${j.letter}`) : "–"),
      h("td.fit", { "data-name": "State" }, state(j)),
      h("td.nowrap", { "data-name": "Since" }, since(j.at, app.now())),
      h("td", { "data-name": "Api" }, j.api || "–"),
      h("td.whole", { "data-name": "Key" }, j.api && j.key ? h("a", { href: link("/bucket", { api: j.api, key: j.key }) }, j.key) : j.key || "–"),
      h("td.fit", { "data-name": "Calls" }, String(j.calls)),
      h("td.fit", { "data-name": "Status" }, j.status || "–"),
      h("td.nowrap", { "data-name": "Took" }, j.accepted && (j.state === "done" || j.state === "dead") ? brief(Date.parse(j.at) - Date.parse(j.accepted)) : "–"))))));
}

function state(j) {
  if (j.state === "dead") return h("a.chip", { class: shadeOf(j.reason), href: link("/letter", { seq: j.letter }), "data-state": j.state }, j.reason);
  return h("span.chip", { class: shade[j.state], "data-state": j.state }, j.state === "waiting" && j.phase !== "waiting" ? j.phase.replaceAll("_", " ") : named[j.state]);
}

function pages(before, next) {
  if (!before && !next) return null;
  return h("nav.actions.pages", { "aria-label": "Pages of jobs" },
    h("button", { type: "button", disabled: !before, on: { click: () => change({ before: "" }) } }, "Newest"),
    h("button", { type: "button", disabled: !next, on: { click: () => change({ before: next }) } }, "Older"));
}
