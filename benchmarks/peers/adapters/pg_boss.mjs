import { command, hitsOfWorker, load, order, produce, ready, url } from "./common.mjs";

const { PgBoss } = load("pg-boss");
const queue = "noop";
const boss = new PgBoss({
  connectionString: url,
  max: 10,
  useListenNotify: true,
  schedule: false,
  supervise: command === "worker",
});
boss.on("error", (error) => console.error(error));
await boss.start();

if (command === "worker") {
  const hit = hitsOfWorker();
  ready();
  const options = {
    batchSize: order.batchSize,
    localConcurrency: order.concurrency,
    pollingIntervalSeconds: 0.5,
    notifyPollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
  };
  await boss.work(queue, options, async (jobs) => {
    for (const job of jobs) hit(job.data.seq);
  });
  process.on("SIGTERM", async () => {
    await boss.stop({ graceful: true, timeout: 3000 });
    process.exit(0);
  });
} else {
  if (command === "install") await boss.createQueue(queue, { notify: true });
  else
    await produce(
      (seq) => boss.send(queue, { seq }),
      (seqs) => boss.insert(queue, seqs.map((seq) => ({ data: { seq } }))),
    );
  await boss.stop({ graceful: false });
  process.exit(0);
}
