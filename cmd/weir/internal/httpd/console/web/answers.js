// The answers of weir that pages use. With every drawing a page says which answers it needs and how fresh; unused ones are dropped.
import { get } from "./ask.js";

/** Answers keeps the answers that the present page needs. */
export class Answers {
  constructor(changed) {
    this.changed = changed;
    this.all = new Map(); // by path
  }

  /**
   * use returns the newest answer to a path: {value, error, at}. It asks again after every milliseconds; 0 means never. Of the answers with the
   * same turn it asks for one at a time: weir answers few questions at once that read much.
   */
  use(path, every = 0, turn = "") {
    let one = this.all.get(path);
    if (!one) {
      one = { value: undefined, error: null, at: 0, came: 0, took: 0, asking: null, turn };
      this.all.set(path, one);
    }
    one.needed = true;
    const old = one.at === 0 || (every > 0 && Date.now() - one.at >= Math.max(every, 5 * one.took)); // a slow question is asked less often
    const others = turn !== "" && [...this.all.values()].some((o) => o.turn === turn && o.asking);
    if (old && !one.asking && !others && document.visibilityState !== "hidden") this.ask(path, one);
    return one;
  }

  async ask(path, one) {
    one.asking = new AbortController();
    const began = Date.now();
    try {
      one.value = await get(path, one.asking.signal);
      one.error = null;
      one.came = Date.now();
    } catch (err) {
      if (one.asking?.signal.aborted) return;
      one.error = err;
      if (err.status === 404) one.value = undefined;
    } finally {
      one.at = Date.now();
      one.took = one.at - began;
      one.asking = null;
    }
    this.changed();
  }

  /** newest returns when the newest answer that the present page shows came, in milliseconds; 0 if it shows none. */
  newest() {
    return Math.max(0, ...[...this.all.values()].filter((one) => one.needed).map((one) => one.came));
  }

  /** again asks anew for the answers whose paths begin with begin, after something was changed. */
  again(begin = "") {
    this.stale(begin);
    this.changed();
  }

  /** stale marks these answers so that the next drawing asks for them anew. */
  stale(begin) {
    for (const [path, one] of this.all) if (path.startsWith(begin)) one.at = 0;
  }

  clear() {
    for (const one of this.all.values()) one.asking?.abort();
    this.all.clear();
  }

  begin() {
    for (const one of this.all.values()) one.needed = false;
  }

  end() {
    for (const [path, one] of this.all) {
      if (one.needed) continue;
      one.asking?.abort();
      this.all.delete(path);
    }
  }
}
