// weir sends its state once a second as a server-sent event, and signs of life in between. The browser reconnects by itself when the
// connection breaks. The console shows how old the last event is, so that old figures are not taken for new ones. A hidden tab closes its
// connection: a browser opens at most six to a server, for all tabs together.

const silent = 3000; // milliseconds without any event after which weir counts as unreachable
const late = 5000; // milliseconds without a snapshot after which the figures count as old, though weir still answers
const again = 2000; // milliseconds until the next try after the browser gave up
const unseen = 5000; // milliseconds that a tab is hidden before it closes its connection
const watched = 250;

/** Stream receives snapshots until close. */
export class Stream {
  /** tell gets each snapshot; turn gets "live", "late" or "lost" whenever that changes; refused is called when weir, or a proxy before it, ends the stream for good. */
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

  // rest closes the connection until the tab is visible again.
  rest() {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
    this.resting = true;
    this.become("late");
  }

  open() {
    if (this.source) return;
    if (this.resting) this.heard = Date.now(); // the hidden tab did not listen
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
      return; // truncated by a proxy: the next one comes in a second
    }
    this.told = Date.now();
    this.look();
    const { deepest = {}, ...status } = snapshot;
    const buckets = Object.entries(deepest).flatMap(([api, all]) => (all ?? []).map((b) => ({ api, ...b })));
    this.tell({ at: status.at, status, buckets });
  }

  /** contact notes that weir has answered, on this stream or another request. */
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
