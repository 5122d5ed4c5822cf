import { h } from "../dom.js";
import { list } from "../ask.js";
import { things } from "../format.js";
import { said } from "../time.js";
import { failed, waits, command } from "../said.js";

const grades = { ok: ["✓", "good", "fine"], warning: ["!", "held", "warning"], problem: ["✗", "dead", "to fix"] };

/** doctor shows findings that will cause trouble. */
export const doctor = {
  path: "/doctor", title: "Doctor", key: "d",
  view(app) {
    const asked = app.answers.use("doctor"), findings = list(asked.value, "findings");
    const bad = findings.filter((f) => f.grade !== "ok");
    return [
      h("div.bar", {}, h("h1", {}, "Doctor"), h("div.actions", {}, h("button", { type: "button", disabled: Boolean(asked.asking), on: { click: () => app.answers.again("doctor") } }, asked.asking ? "Looking …" : "Look again"))),
      asked.error && failed(asked.error),
      asked.value === undefined && !asked.error ? waits("disk, clock, fsync, limits and the connection to each API")
        : [h("p", { role: "status" }, bad.length === 0 ? `${things(findings.length, "check")}, no problem found.` : `${things(bad.length, "finding")} to look at.`),
          h("ul.findings", {}, findings.map((f, i) => {
            const [mark, shade, word] = grades[f.grade] ?? ["?", "unknown", f.grade];
            return h("li", { key: String(i) }, h("span.chip", { class: shade }, h("span", { "aria-hidden": "true" }, mark), h("span.unseen", {}, word)), h("div", {}, h("p.whole", {}, said(f.what)), f.fix && h("p.quiet.whole", {}, said(f.fix))));
          }))],
      command("weir doctor"),
    ];
  },
};
