// The page of holdfast.contrib.fastapi: waits for its task, then opens the next address or shows the result.
"use strict";
(async () => {
  const page = document.querySelector("main[data-wait]");
  const bar = page.querySelector("progress");
  const told = page.querySelector("[role=status]");
  const onProgress = ({ done, total, note }) => {
    if (total) bar.max = total;
    if (done !== undefined && done !== null) bar.value = done;
    if (note) told.textContent = note;
  };
  try {
    const result = await holdfast.wait(page.dataset.wait, { onProgress });
    if (page.dataset.then) {
      location.replace(page.dataset.then);
      return;
    }
    told.textContent = typeof result === "string" ? result : result === null ? "Done." : JSON.stringify(result);
    bar.hidden = true;
  } catch (error) {
    bar.hidden = true;
    told.textContent = `It did not succeed: ${error.status ?? "error"}.`;
  }
})();
