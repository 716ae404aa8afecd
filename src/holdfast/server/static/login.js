// The token is in the fragment, which is not sent to the server and so not logged. Submit it in the form.
"use strict";

function logIn() {
  const token = decodeURIComponent(location.hash.slice(1));
  if (!token.startsWith("hf_")) return;
  history.replaceState(null, "", location.pathname + location.search);
  const form = document.querySelector("form");
  form.elements.token.value = token;
  form.requestSubmit();
}

addEventListener("hashchange", logIn);
logIn();
