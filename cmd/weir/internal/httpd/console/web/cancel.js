// Cancelling a job that has not been called yet: it becomes a dead letter.
import { h } from "./dom.js";
import { ask } from "./dialog.js";
import { post } from "./ask.js";
import { announce } from "./announce.js";

/** cancelButton cancels a job after a confirmation. */
export function cancelButton(app, api, job) {
  return h("button", { type: "button", "aria-label": `Cancel job ${job}`, on: { click: async () => {
    const done = await ask({
      title: "Cancel this job?", does: "Cancel the job", grave: true,
      view: () => [h("p", {}, "1 job of ", h("b", {}, api), ": ", h("code", {}, job)), h("p", {}, "It will not be called and costs nothing. It becomes a dead letter with the reason “cancelled” and can be redriven from there.")],
      act: () => post(`apis/${encodeURIComponent(api)}/jobs/${encodeURIComponent(job)}/cancel`),
    });
    if (done) {
      announce(`Job ${job} is cancelled`);
      app.answers.again();
    }
  } } }, "Cancel");
}
