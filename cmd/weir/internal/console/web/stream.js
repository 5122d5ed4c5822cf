// The state of weir comes once a second as a server-sent event. The browser connects again by itself when the connection breaks; how long
// ago the last word came is told, so that nobody takes old numbers for new ones.

const late = 5000; // milliseconds without a word after which the numbers are called old
const again = 3000; // until the next try where the browser gives up

/** Stream receives snapshots until close. */
export class Stream {
  /** tell is called with each snapshot; turn with "live", "late" or "ended" whenever that changes. */
  constructor({ tell, turn }) {
    this.tell = tell;
    this.turn = turn;
    this.state = "late";
    this.heard = 0;
    this.watch = setInterval(() => this.look(), 1000);
    this.open();
  }

  open() {
    this.source = new EventSource("/api/v1/stream");
    this.source.addEventListener("snapshot", (event) => this.take(event));
    this.source.addEventListener("error", () => {
      if (this.source.readyState !== EventSource.CLOSED) return; // it tries again by itself
      this.become("ended");
      clearTimeout(this.retry);
      this.retry = setTimeout(() => this.open(), again);
    });
  }

  take(event) {
    let snapshot;
    try {
      snapshot = JSON.parse(event.data);
    } catch {
      return; // cut off by a proxy: the next one comes in a second
    }
    this.heard = Date.now();
    this.become("live");
    const { deepest = {}, ...status } = snapshot;
    const buckets = Object.entries(deepest).flatMap(([api, all]) => (all ?? []).map((b) => ({ api, ...b })));
    this.tell({ at: status.at, status, buckets });
  }

  look() {
    if (this.state === "live" && Date.now() - this.heard > late) this.become("late");
  }

  become(state) {
    if (state === this.state) return;
    this.state = state;
    this.turn(state);
  }

  close() {
    clearInterval(this.watch);
    clearTimeout(this.retry);
    this.source.close();
  }
}
