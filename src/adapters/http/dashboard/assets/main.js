/* Starts the page: language, session, live feed, and the frame around the pages. */

import { get, mayResume, onSession, token } from "./core/api.js";
import { html, render, signal } from "./core/html.js";
import { errorText, loadLanguage } from "./core/i18n.js";
import { startLive, stopLive } from "./core/live.js";
import { forgetPending } from "./core/notify.js";
import { forgetNames, me } from "./core/session.js";
import { registerWorker } from "./core/worker.js";
import { SignIn } from "./pages/sign_in.js";
import { closeDialogs, Dialogs } from "./ui/dialog.js";
import { Notices, tell } from "./ui/notices.js";
import { Shell } from "./ui/shell.js";

const problem = signal("");
const starting = signal(false);

async function start() {
  starting.value = true;
  try {
    me.value = await get("/auth/me");
    problem.value = "";
    startLive();
  } finally {
    starting.value = false;
  }
}

const startOrTell = () => start().catch((error) => (problem.value = errorText(error)));

function end() {
  if (me.value === null) return;
  stopLive();
  forgetPending();
  forgetNames();
  closeDialogs();
  me.value = null;
}

function App() {
  if (me.value === null && starting.value) return html`<main class="narrow" aria-busy="true"></main>`;
  return html`${me.value === null ? html`<${SignIn} problem=${problem.value} start=${startOrTell} />` : html`<${Shell} />`}<${Dialogs} /><${Notices} />`;
}

await loadLanguage();
onSession((bearer) => bearer || end());
window.addEventListener("unhandledrejection", ({ reason }) => tell(reason));
if (mayResume()) {
  starting.value = true;
  token()
    .then(start)
    .catch((error) => {
      starting.value = false;
      problem.value = error.status === 401 ? "" : error.message;
    });
}
render(html`<${App} />`, document.getElementById("page"));
registerWorker();
