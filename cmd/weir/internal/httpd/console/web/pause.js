// Pausing and resuming an API, or one of its keys.
import { h } from "./dom.js";
import { keyPath } from "./route.js";
import { ask } from "./dialog.js";
import { post } from "./ask.js";
import { announce } from "./announce.js";

/** pauseButton is a button that pauses an API or key, or resumes a paused one. */
export function pauseButton(app, api, key, pause) {
  const what = key === undefined ? api : `${api}/${key}`;
  return pause
    ? h("button", { type: "button", key: "pause", "aria-label": `Resume ${what}`, on: { click: () => resume(app, api, key, what) } }, "Resume")
    : h("button", { type: "button", key: "pause", "aria-label": `Pause ${what}`, on: { click: () => hold(app, api, key, what) } }, "Pause");
}

async function hold(app, api, key, what) {
  const jobs = waitingJobs(app, api, key);
  const done = await ask({
    title: `Pause ${what}?`, does: "Pause", state: { length: "", why: "" },
    view: (state) => [
      h("p", {}, key === undefined ? "weir calls no job of the API until you resume it" : "weir calls no job of the key until you resume it",
        "; it still accepts jobs while their buckets have room. Running calls end as usual.", jobs !== null && ` ${jobs} of them wait now.`),
      h("div.filters", {},
        h("div.field", {}, h("label", { for: "pause-for" }, "For (2h, 30m; empty: until resumed)"), h("input", { id: "pause-for", value: state.length, pattern: "([0-9]+(d|h|m|s))+", on: { input: (e) => { state.length = e.target.value.trim(); } } })),
        h("div.field", {}, h("label", { for: "pause-why" }, "Why (others read it)"), h("input", { id: "pause-why", value: state.why, maxlength: 200, on: { input: (e) => { state.why = e.target.value; } } }))),
    ],
    act: (state) => post(path(api, key, "pause"), strip({ for: state.length, why: state.why })),
  });
  if (done) said(app, `${what} is paused`);
}

async function resume(app, api, key, what) {
  const jobs = waitingJobs(app, api, key);
  const done = await ask({
    title: `Resume ${what}?`, does: "Resume",
    view: () => h("p", {}, "weir calls its jobs again from now on, within its limits.", jobs !== null && ` ${jobs} of them wait.`),
    act: () => post(path(api, key, "resume")),
  });
  if (done) said(app, `${what} is resumed`);
}

function waitingJobs(app, api, key) {
  if (key === undefined) return app.snapshot?.status.apis.find((a) => a.api === api)?.jobs ?? null;
  return app.snapshot?.buckets.find((b) => b.api === api && b.key === key)?.depth ?? null;
}

const path = (api, key, verb) => (key === undefined ? `apis/${encodeURIComponent(api)}/${verb}` : keyPath(api, key, verb));

const strip = (body) => Object.fromEntries(Object.entries(body).filter(([, v]) => v !== ""));

function said(app, text) {
  announce(text);
  app.answers.again("apis/");
}
