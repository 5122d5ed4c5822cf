// All pages, in the order of the navigation.
import { overview } from "./overview.js";
import { buckets } from "./buckets.js";
import { bucket } from "./bucket.js";
import { letters } from "./letters.js";
import { letter } from "./letter.js";
import { redrives } from "./redrives.js";
import { jobs } from "./jobs.js";
import { job } from "./job.js";
import { limits } from "./limits.js";
import { spend } from "./spend.js";
import { replicas } from "./replicas.js";
import { doctor } from "./doctor.js";
import { configuration } from "./configuration.js";
import { events } from "./events.js";
import { nowhere } from "./nowhere.js";

export const pages = [overview, buckets, bucket, jobs, job, letters, letter, redrives, limits, spend, replicas, doctor, configuration, events];

/** titleOf returns the title of a page; a title may depend on the query. */
export const titleOf = (page, query = new URLSearchParams()) => (typeof page.title === "function" ? page.title(query) : page.title);

/** pageAt returns the page of a path. */
export const pageAt = (path) => pages.find((p) => p.path === path) ?? nowhere;
