"use strict";
const find = (selector) => document.querySelector(selector);
const requestForm = find("#request-code"), codeForm = find("#enter-code"), bar = find("#bar");
const post = async (path, form) => {
  const response = await fetch(path, { method: "POST", body: new URLSearchParams(form ? new FormData(form) : {}) });
  return [response.ok, await response.json()];
};
let login;

requestForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  const [ok, body] = await post("/demo/logins", requestForm);
  if (!ok) { find("#login-status").textContent = body.detail; return; }
  login = body.login;
  requestForm.hidden = true;
  codeForm.hidden = false;
  find("#login-status").textContent = "Sending …";
  const sent = await holdfast.wait(body.wait).catch((error) => error);
  find("#login-status").textContent = sent.status === "succeeded" ? "The code was sent." : "The e-mail could not be sent.";
});

codeForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  const [ok, body] = await post(`/demo/logins/${login}`, codeForm);
  codeForm.hidden = ok;
  find("#login-status").textContent = ok ? `Welcome, ${body.email}!` : body.detail;
});

for (const button of document.querySelectorAll("[data-run]")) {
  button.addEventListener("click", async () => {
    const [ok, body] = await post(`/demo/run/${button.dataset.run}`);
    if (!ok) { find("#task-status").textContent = body.detail; return; }
    if (body.begun) { find("#task-status").textContent = `${body.begun} orders have begun. Watch them in the dashboard.`; return; }
    find("#task-status").textContent = "Waiting …";
    const onProgress = ({ done, total, note }) => {
      bar.hidden = false;
      bar.max = total;
      bar.value = done;
      find("#task-status").textContent = note;
    };
    try {
      find("#task-status").textContent = `Done: ${await holdfast.wait(body.wait, { onProgress })}`;
    } catch (error) {
      find("#task-status").textContent = `The task ended: ${error.status}`;
    }
    bar.hidden = true;
  });
}
