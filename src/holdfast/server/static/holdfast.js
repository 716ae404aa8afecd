// Wait for a task in a browser: const result = await holdfast.wait(url, { onProgress, onStatus, signal }).
// For a process, it returns { process, process_id, status }, whatever the status.
// Uses one connection, and reconnects where it broke off if the connection is lost.
"use strict";
(() => {
  class TaskError extends Error {
    constructor(status, message) {
      super(message);
      this.name = "TaskError";
      this.status = status;
    }
  }

  const MAX_PAUSE = 15000;

  const pause = (milliseconds, signal) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, milliseconds);
      signal?.addEventListener("abort", () => {
        clearTimeout(timer);
        reject(signal.reason);
      }, { once: true });
    });

  async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        const event = { data: [] };
        for (const line of text.slice(0, end).split("\n")) {
          if (line.startsWith("id: ")) event.id = line.slice(4);
          else if (line.startsWith("event: ")) event.kind = line.slice(7);
          else if (line.startsWith("data: ")) event.data.push(line.slice(6));
        }
        text = text.slice(end + 2);
        if (event.kind) yield { id: event.id, kind: event.kind, data: JSON.parse(event.data.join("\n")) };
      }
    }
  }

  async function wait(url, { onProgress, onStatus, signal } = {}) {
    const address = new URL(url, document.baseURI);
    address.pathname = address.pathname.replace(/\/wait$/, "/stream");
    let failures = 0;
    for (;;) {
      try {
        const response = await fetch(address, { signal, credentials: "omit", cache: "no-store" });
        if (response.status >= 400 && response.status < 500 && response.status !== 429) {
          const problem = await response.json().catch(() => ({}));
          throw new TaskError("refused", problem.detail ?? `the server responded with ${response.status}`);
        }
        if (response.ok && response.body) {
          for await (const { id, kind, data } of events(response.body)) {
            failures = 0;
            if (id) address.searchParams.set("after", id);
            if (kind === "progress") onProgress?.(data);
            else if (kind === "status") onStatus?.(data);
            else if (kind === "end") {
              if (data.process) return data;
              if (data.status === "succeeded") return data.result;
              throw new TaskError(data.status, `the task ended: ${data.status}`);
            }
          }
        }
      } catch (error) {
        if (error instanceof TaskError || signal?.aborted) throw error;
      }
      failures += 1;
      const longest = Math.min(MAX_PAUSE, 500 * 2 ** Math.min(failures - 1, 6));
      await pause(longest * (0.5 + Math.random() / 2), signal);
    }
  }

  globalThis.holdfast = { wait, TaskError };
})();
