// The same contract as common.py, for Node.
import fs from "node:fs";
import { createRequire } from "node:module";

export const url = process.env.BENCH_DATABASE_URL;
export const command = process.env.BENCH_COMMAND;
export const order = JSON.parse(process.env.BENCH_ORDER);
export const load = createRequire(process.env.BENCH_NODE_HOME + "/package.json");

const now = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6));

export function hitsOfWorker() {
  const starts = new BigUint64Array(order.count + 1);
  const bytes = Buffer.from(starts.buffer);
  const file = fs.openSync(order.slots, "r+");
  let changed = false;
  const flush = () => {
    if (!changed) return;
    changed = false;
    fs.writeSync(file, bytes, 0, bytes.length, 0);
  };
  setInterval(flush, 50);
  process.on("exit", flush);
  return (seq) => {
    changed = true;
    if (starts[seq]) starts[order.count]++;
    else starts[seq] = now();
  };
}

export const ready = () => fs.writeFileSync(order.slots + ".ready", "");

export async function produce(one, many) {
  console.log(command === "trickle" ? await trickle(one) : await enqueue(one, many));
}

async function enqueue(one, many) {
  const first = order.first ?? 0, end = first + order.count, batch = order.batch ?? 1000;
  const started = performance.now();
  if (order.mode === "one") for (let seq = first; seq < end; seq++) await one(seq);
  else for (let seq = first; seq < end; seq += batch)
    await many(Array.from({ length: Math.min(batch, end - seq) }, (_, n) => seq + n));
  return JSON.stringify({ seconds: (performance.now() - started) / 1000 });
}

async function trickle(one) {
  const called = [], returned = [];
  let due = performance.now();
  for (let seq = 0; seq < order.count; seq++) {
    const start = performance.now();
    if (due > start) await new Promise((done) => setTimeout(done, due - start));
    called.push(now());
    await one(seq);
    returned.push(now());
    due = Math.max(due + order.interval * 1000, start);
  }
  return `{"called": [${called}], "returned": [${returned}]}`;
}
