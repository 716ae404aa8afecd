"use strict";
const at = (selector) => document.querySelector(selector);
const ask = at("#ask"), tell = at("#tell"), bar = at("#bar");
const post = async (path, form) => {
  const answer = await fetch(path, { method: "POST", body: new URLSearchParams(form ? new FormData(form) : {}) });
  return [answer.ok, await answer.json()];
};
let login;

ask.addEventListener("submit", async (event) => {
  event.preventDefault();
  const [ok, answer] = await post("/demo/logins", ask);
  if (!ok) { at("#news").textContent = answer.detail; return; }
  login = answer.login;
  ask.hidden = true;
  tell.hidden = false;
  at("#news").textContent = "Sending …";
  const sent = await holdfast.wait(answer.wait).catch((error) => error);
  at("#news").textContent = sent.status === "succeeded" ? "The code is on its way." : "The mail could not be sent.";
});

tell.addEventListener("submit", async (event) => {
  event.preventDefault();
  const [ok, answer] = await post(`/demo/logins/${login}`, tell);
  tell.hidden = ok;
  at("#news").textContent = ok ? `Welcome, ${answer.email}!` : answer.detail;
});

for (const button of document.querySelectorAll("[data-run]")) {
  button.addEventListener("click", async () => {
    const [ok, answer] = await post(`/demo/run/${button.dataset.run}`);
    if (!ok) { at("#told").textContent = answer.detail; return; }
    at("#told").textContent = "Waiting …";
    const onProgress = ({ done, total, note }) => {
      bar.hidden = false;
      bar.max = total;
      bar.value = done;
      at("#told").textContent = note;
    };
    try {
      at("#told").textContent = `Done: ${await holdfast.wait(answer.wait, { onProgress })}`;
    } catch (error) {
      at("#told").textContent = `It ended: ${error.status}`;
    }
    bar.hidden = true;
  });
}
