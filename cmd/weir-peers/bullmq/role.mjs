// A role of BullMQ: settings as JSON in the argument, orders and answers as lines of JSON. See role.go.
import http from 'node:http';
import readline from 'node:readline';
import { Queue, Worker } from 'bullmq';

const settings = JSON.parse(process.argv[2]);
const [host, port] = settings.store.split(':');
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const batch = 1000; // jobs of an addBulk

const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');

const queues = new Map();
async function publish({ jobs, body, queue }) {
  if (!queues.has(queue)) {
    // A job that is done is not kept: River's, Asynq's and weir's is not either, or is cleaned away.
    queues.set(queue, new Queue(queue, { connection, defaultJobOptions: { removeOnComplete: true } }));
  }
  const adding = [];
  for (let from = 0; from < jobs; from += batch) {
    const some = [];
    for (let job = from; job < Math.min(jobs, from + batch); job++) {
      some.push({ name: 'call', data: { body: (job + ' ').padEnd(body, 'x') } });
    }
    adding.push(queues.get(queue).addBulk(some));
    if (adding.length === 4) await adding.shift();
  }
  await Promise.all(adding);
}

const agent = new http.Agent({ keepAlive: true, maxSockets: settings.at_once });
function call(body) {
  return new Promise((resolve, reject) => {
    const headers = { 'content-length': Buffer.byteLength(body) };
    const request = http.request(settings.api, { method: 'POST', agent, headers }, (answer) => {
      answer.resume();
      answer.on('error', reject);
      answer.on('end', () => (answer.statusCode === 200 ? resolve() : reject(new Error('the api answered ' + answer.statusCode))));
    });
    request.on('error', reject);
    request.end(body);
  });
}

let worker;
async function work() {
  const limiter = settings.rate ? { max: settings.rate, duration: 1000 } : undefined;
  worker = new Worker(settings.queue, (job) => call(job.data.body), { connection, concurrency: settings.at_once, limiter });
  worker.on('error', (err) => console.error(err.message));
  worker.on('failed', (job, err) => console.error(err.message));
  await worker.waitUntilReady();
}

const orders = { publish, work, rest: () => worker.close() };
say({});
for await (const line of readline.createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  const began = performance.timeOrigin + performance.now();
  const answer = { began_ns: Math.round(began * 1000) * 1000, took_ns: 0 };
  try {
    await orders[order.do](order);
  } catch (err) {
    answer.error = String(err.stack || err);
  }
  answer.took_ns = Math.round((performance.timeOrigin + performance.now() - began) * 1e6);
  say(answer);
}
process.exit(0);
