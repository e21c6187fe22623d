/* Starts the page: language, session, live feed, and the frame around the pages. */

import { get, lacksFactor, mayResume, onSession, resumeFromProvider, token } from "./core/api.js";
import { html, render, signal } from "./core/html.js";
import { errorText, loadLanguage } from "./core/i18n.js";
import { startLive, stopLive } from "./core/live_data_hooks.js";
import { forgetPending } from "./core/browser_notifications.js";
import { place, replace } from "./core/router.js";
import { forgetNames, me } from "./core/signed_in_user.js";
import { registerWorker } from "./core/service_worker_registration.js";
import { FirstRun } from "./pages/first_run.js";
import { Decide } from "./pages/approval_link.js";
import { Invitation } from "./pages/invitation.js";
import { RequiredSecondFactor } from "./pages/second_factor.js";
import { providerProblem, SignIn } from "./pages/sign_in.js";
import { closeDialogs, Dialogs } from "./ui/dialog.js";
import { Notices, tell } from "./ui/toasts.js";
import { Shell } from "./ui/app_shell.js";

const problem = signal("");
const starting = signal(false);
const challenge = signal(null); // of a person who came back from the identity provider and has a second factor

async function start() {
  starting.value = true;
  try {
    const [person, factor] = await Promise.all([get("/auth/me"), get("/auth/second-factor")]);
    lacksFactor.value = factor.required && !factor.enabled;
    me.value = person;
    problem.value = "";
    challenge.value = null;
    if (!lacksFactor.value) startLive();
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

function Signed() {
  return lacksFactor.value ? html`<${RequiredSecondFactor} start=${startOrTell} />` : html`<${Shell} />`;
}

function App() {
  const { name, rest } = place.value;
  if (name === "invitation" && rest[0]) return html`<${Invitation} key=${rest[0]} token=${rest[0]} start=${startOrTell} /><${Notices} />`;
  if (name === "decide" && rest[0]) return html`<${Decide} key=${rest[0]} token=${rest[0]} /><${Notices} />`;
  if (me.value === null && starting.value) return html`<main class="narrow" aria-busy="true"></main>`;
  const door = place.value.name === "first-run" ? html`<${FirstRun} start=${startOrTell} />` : html`<${SignIn} problem=${problem.value} pending=${challenge.value} start=${startOrTell} />`;
  return html`${me.value === null ? door : html`<${Signed} />`}<${Dialogs} /><${Notices} />`;
}

/* Where the service sends the browser after the identity provider. The address is replaced: going back must not repeat it. */
function takeReturn() {
  const { name, rest } = place.value;
  if (name === "signed-in") resumeFromProvider();
  else if (name === "confirm") challenge.value = { challengeToken: rest[0], methods: (rest[1] ?? "").split("-") };
  else if (name === "sign-in-failed") problem.value = providerProblem(rest[0]);
  else return;
  replace(name === "signed-in" ? rest.join("/") : "");
}

await loadLanguage();
takeReturn();
onSession((bearer) => bearer || end());
window.addEventListener("unhandledrejection", ({ reason }) => tell(reason));
if (mayResume()) {
  starting.value = true;
  token()
    .then(start)
    .catch((error) => {
      starting.value = false;
      problem.value = error.status === 401 ? "" : errorText(error);
    });
}
render(html`<${App} />`, document.getElementById("page"));
registerWorker();
