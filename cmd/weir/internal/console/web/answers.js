// What pages have asked weir for. A page says with every drawing what it needs and how fresh; what no page needs any more is forgotten.
import { get } from "./ask.js";

/** Answers keeps what is needed now. */
export class Answers {
  constructor(changed) {
    this.changed = changed;
    this.all = new Map(); // by path
  }

  /** use is the answer to a path as far as it is known: {value, error, at}. It is asked for anew after so many milliseconds; 0 is never. */
  use(path, every = 0) {
    let one = this.all.get(path);
    if (!one) {
      one = { value: undefined, error: null, at: 0, took: 0, asking: null };
      this.all.set(path, one);
    }
    one.needed = true;
    const old = one.at === 0 || (every > 0 && Date.now() - one.at >= Math.max(every, 5 * one.took)); // who takes long is asked seldom
    if (old && !one.asking && document.visibilityState !== "hidden") this.ask(path, one);
    return one;
  }

  async ask(path, one) {
    one.asking = new AbortController();
    const began = Date.now();
    try {
      one.value = await get(path, one.asking.signal);
      one.error = null;
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

  /** again has the answers asked for anew whose paths begin so: something was changed. */
  again(begin = "") {
    this.stale(begin);
    this.changed();
  }

  /** stale has them asked for anew with the next drawing. */
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
