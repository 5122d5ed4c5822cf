// What the console has received lately of each api and each deep bucket, for drawings: at most fifteen minutes, and of so many buckets. A
// page that has just been opened begins with what weir has kept itself.

export const span = 15 * 60 * 1000; // milliseconds
const mostBuckets = 400;

/** Past keeps samples: {at, level, came, left, refused}, of which all but the level only grow until something begins anew. */
export class Past {
  constructor() {
    this.lines = new Map(); // by name, the latest used last
  }

  /** of is what is known of an api, or of a bucket of it. */
  of(api, key) {
    return this.lines.get(name(api, key)) ?? [];
  }

  /** take notes what a snapshot tells. */
  take(snapshot) {
    const at = Date.parse(snapshot.at);
    for (const a of snapshot.status.apis) {
      this.add(name(a.api), { at, level: a.jobs, came: a.accepted, left: a.called, refused: a.throttled });
    }
    for (const b of snapshot.buckets) {
      this.add(name(b.api, b.key), { at, level: b.depth, came: b.arrived, left: null, refused: null });
    }
    this.bound();
  }

  add(of, sample) {
    const line = this.lines.get(of) ?? [];
    if (line.length > 0 && line.at(-1).at >= sample.at) return;
    line.push(sample);
    while (line.length > 0 && line[0].at < sample.at - span) line.shift();
    this.lines.delete(of);
    this.lines.set(of, line);
  }

  /** before puts what weir has kept before what this page has received. Of each part it tells what came and left in it. */
  before(api, key, samples) {
    const of = name(api, key);
    const line = this.lines.get(of) ?? [];
    const first = line[0] ?? { at: Infinity, came: 0, left: 0, refused: 0 };
    const older = [];
    let { came, left, refused } = first;
    for (const s of samples.toReversed()) {
      if (s.at >= first.at) continue;
      older.push({ at: s.at, level: s.level, came, left, refused });
      came -= s.came;
      left = left === null ? null : left - s.left;
      refused = refused === null ? null : refused - s.refused;
    }
    if (older.length > 0) this.lines.set(of, older.reverse().concat(line));
  }

  bound() {
    let buckets = this.lines.size;
    for (const of of this.lines.keys()) {
      if (buckets <= mostBuckets) return;
      this.lines.delete(of);
      buckets--;
    }
  }
}

const name = (api, key) => JSON.stringify(key === undefined ? [api] : [api, key]);

/**
 * slots divides the last while into equal parts, oldest first: {at, level, came, left, refused}, of which all but the level are a second's.
 * Where nothing is known of a part it is null.
 */
export function slots(line, now, while_ = span, parts = 90) {
  const width = while_ / parts;
  const begin = Math.floor(now / width) * width + width - while_; // parts stay where they are as time goes on
  const all = Array.from({ length: parts }, () => null);
  for (let i = 1; i < line.length; i++) {
    const at = Math.floor((line[i].at - begin) / width);
    if (at < 0 || at >= parts || line[i].at - line[i - 1].at > longest) continue;
    add((all[at] ??= nothing(begin + at * width)), line[i - 1], line[i]);
  }
  for (const slot of all) if (slot) perSecond(slot);
  return all;
}

/** pace is what came, left and was refused in a second, over the last while; null where that is not known. */
export function pace(line, while_ = 10_000) {
  if (line.length < 2) return null;
  const sum = nothing(0), since = line.at(-1).at - while_;
  for (let i = line.length - 1; i > 0 && line[i - 1].at >= since && line[i].at - line[i - 1].at <= longest; i--) add(sum, line[i - 1], line[i]);
  return sum.seconds > 0 ? perSecond(sum) : null;
}

const longest = 60_000; // milliseconds between two samples: beyond that nobody knows when something was

const nothing = (at) => ({ at, level: 0, seconds: 0, came: 0, left: 0, refused: 0 });

// add puts what happened between two samples to a sum. What has become less has begun anew: all of it is new then.
function add(sum, a, b) {
  const grown = (what) => (b[what] === null || a[what] === null ? 0 : b[what] >= a[what] ? b[what] - a[what] : b[what]);
  const came = grown("came");
  sum.level = b.level;
  sum.seconds += (b.at - a.at) / 1000;
  sum.came += came;
  sum.left += b.left === null ? Math.max(0, came - (b.level - a.level)) : grown("left");
  sum.refused += grown("refused");
}

function perSecond(sum) {
  for (const what of ["came", "left", "refused"]) sum[what] /= sum.seconds;
  return sum;
}
