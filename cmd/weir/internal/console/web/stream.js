// The state of weir comes once a second as a server-sent event, and between two of them that weir is there still. The browser connects again
// by itself when the connection breaks. How long ago the last word came is told, so that no old figures are taken for new ones. A tab that is
// hidden lets its connection go: browsers have six to a server, for all tabs together.

const silent = 3000; // milliseconds without a word after which weir counts as out of reach
const late = 5000; // milliseconds without a snapshot after which the figures are old, though weir is there
const again = 2000; // until the next try where the browser gives up
const unseen = 5000; // that a tab is hidden before it lets go
const watched = 250;

/** Stream receives snapshots until close. */
export class Stream {
  /** tell is called with each snapshot; turn with "live", "late" or "lost" whenever that changes; refused when weir, or what stands before it, ends the stream for good. */
  constructor({ tell, turn, refused }) {
    Object.assign(this, { tell, turn, refused, state: "late", told: 0, heard: Date.now() });
    this.watch = setInterval(() => this.look(), watched);
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

  // rest lets the connection go until the tab is seen again.
  rest() {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
    this.resting = true;
    this.become("late");
  }

  open() {
    if (this.source) return;
    if (this.resting) this.heard = Date.now(); // it has not been listened for meanwhile
    this.resting = false;
    const source = new EventSource("/api/v1/stream");
    this.source = source;
    source.addEventListener("snapshot", (event) => this.take(event));
    for (const word of ["open", "here", "event", "problem"]) source.addEventListener(word, () => this.contact());
    source.addEventListener("error", () => {
      if (source !== this.source || source.readyState !== EventSource.CLOSED) return; // it tries again by itself
      this.source = null;
      clearTimeout(this.retry);
      this.retry = setTimeout(() => this.open(), again);
      this.refused();
    });
  }

  take(event) {
    this.heard = Date.now();
    let snapshot;
    try {
      snapshot = JSON.parse(event.data);
    } catch {
      return; // cut off by a proxy: the next one comes in a second
    }
    this.told = Date.now();
    this.look();
    const { deepest = {}, ...status } = snapshot;
    const buckets = Object.entries(deepest).flatMap(([api, all]) => (all ?? []).map((b) => ({ api, ...b })));
    this.tell({ at: status.at, status, buckets });
  }

  /** contact notes that weir has answered, here or to another question. */
  contact() {
    this.heard = Date.now();
    this.look();
  }

  look() {
    if (this.resting) return;
    const now = Date.now();
    this.become(now - this.heard > silent ? "lost" : now - this.told > late ? "late" : "live");
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
