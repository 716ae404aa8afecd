import { command, hitsOfWorker, load, order, produce, ready, url } from "./common.mjs";

const { run, makeWorkerUtils, Logger } = load("graphile-worker");
const logger = new Logger(() => () => {});

if (command === "worker") {
  const hit = hitsOfWorker();
  ready();
  const worker = {
    connectionString: url,
    concurrentJobs: order.concurrency,
    maxPoolSize: 40,
    pollInterval: 2000,
    localQueue: { size: order.localQueue },
    completeJobBatchDelay: order.completeDelay,
    failJobBatchDelay: order.completeDelay,
    logger,
  };
  const running = await run({ preset: { worker }, taskList: { noop: async ({ seq }) => hit(seq) } });
  await running.promise;
} else {
  const utils = await makeWorkerUtils({ preset: { worker: { connectionString: url, logger } } });
  if (command === "install") await utils.migrate();
  else
    await produce(
      (seq) => utils.addJob("noop", { seq }),
      (seqs) => utils.addJobs(seqs.map((seq) => ({ identifier: "noop", payload: { seq } }))),
    );
  await utils.release();
  process.exit(0);
}
