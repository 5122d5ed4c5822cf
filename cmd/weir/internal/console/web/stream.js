// The state of weir comes once a second as a server-sent event. The browser connects again by itself when the connection breaks; how long
// ago the last word came is told, so that nobody takes old numbers for new ones. A tab that nobody sees lets its connection go: browsers have
// six to a server, for all tabs together.

const late = 5000; // milliseconds without a word after which the numbers are called old
const again = 3000; // until the next try where the browser gives up
const unseen = 5000; // that a tab is hidden before it lets go

/** Stream receives snapshots until close. */
export class Stream {
  /** tell is called with each snapshot; turn with "live", "late" or "ended" whenever that changes. */
  constructor({ tell, turn }) {
    this.tell = tell;
    this.turn = turn;
    this.state = "late";
    this.heard = 0;
    this.watch = setInterval(() => this.look(), 1000);
    this.listening = new AbortController();
    const { signal } = this.listening;
    addEventListener("pagehide", () => this.rest(), { signal });
    addEventListener("pageshow", () => this.open(), { signal });
    document.addEventListener("visibilitychange", () => this.seen(document.visibilityState !== "hidden"), { signal });
    this.open();
  }

  seen(visible) {
    clearTimeout(this.hidden);
    if (visible) this.open();
    else this.hidden = setTimeout(() => this.rest(), unseen);
  }

  // rest lets the connection go until somebody looks again.
  rest() {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
    this.become("late");
  }

  open() {
    if (this.source) return;
    const source = new EventSource("/api/v1/stream");
    this.source = source;
    source.addEventListener("snapshot", (event) => this.take(event));
    source.addEventListener("error", () => {
      if (source !== this.source || source.readyState !== EventSource.CLOSED) return; // it tries again by itself
      this.source = null;
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
    clearTimeout(this.hidden);
    this.listening.abort();
    this.rest();
  }
}
