/* The first account: opened by the one-time link that the service prints while it has none. Its token is in the address after the `#`, which
 * browsers send to nobody. */

import { firstRunState, makeFirstAccount } from "../core/api.js";
import { html, useEffect, useState } from "../core/html.js";
import { errorText, t } from "../core/i18n.js";
import { go, place } from "../core/router.js";
import { LinkButton, Skeleton } from "../ui/basic_components.js";
import { PageForm } from "../ui/page_form.js";

const SPENT = { FIRST_RUN_LINK_INVALID: "LINK_NEEDED", FIRST_RUN_LINK_EXPIRED: "LINK_EXPIRED", ACCOUNT_EXISTS: "DONE" };

export function FirstRun({ start }) {
  const [token = ""] = place.value.rest;
  const [state, setState] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    firstRunState(token).then(setState, (error) => setProblem(errorText(error)));
  }, [token]);
  return html`<main class="narrow">
    <div><img src="/dashboard/icon.svg" alt="" width="56" height="56" /><h1>${t("Welcome to Latchboard")}</h1></div>
    ${problem ? html`<div class="problem" role="alert">${problem}</div>` : null}
    ${state === "READY" ? html`<${OwnerForm} token=${token} start=${start} spent=${setState} />` : state ? html`<${Closed} state=${state} />` : problem ? null : html`<${Skeleton} />`}
  </main>`;
}

const closed = () => ({
  LINK_NEEDED: t("This link is not valid. Open the one that the service printed at its last start; it is also in the file first-run-link.txt of its data directory."),
  LINK_EXPIRED: t("This link has expired. Restart the service: it prints a new one."),
  DONE: t("This installation has an account already. Sign in, or ask its Owner for a login of your own."),
});

const Closed = ({ state }) => html`<p role="status">${closed()[state]}</p>${state === "DONE" ? html`<${LinkButton} href="#/devices" kind="main wide">${t("Sign in")}<//>` : null}`;

function OwnerForm({ token, start, spent }) {
  const fieldsOf = ({ shown }) => [
    { name: "name", label: t("Your name"), required: true, autocomplete: "name", autofocus: true },
    { name: "email", label: t("Email"), type: "email", required: true, autocomplete: "username", hint: t("You sign in with it.") },
    { name: "password", label: t("Password"), type: shown ? "text" : "password", required: true, minlength: 8, maxlength: 256, autocomplete: "new-password", hint: t("8 to 256 characters") },
    { name: "shown", label: t("Show the password"), type: "checkbox" },
  ];
  const send = async ({ name, email, password }) => {
    await makeFirstAccount({ token, name, email, password });
    go("network");
    await start();
  };
  const refused = (error) => {
    if (SPENT[error.code]) spent(SPENT[error.code]);
    return error.details?.length ? "" : errorText(error);
  };
  return html`<${PageForm} fieldsOf=${fieldsOf} prefix="owner" action=${t("Make my login")} kind="main wide" send=${send} refused=${refused}>
    <p class="dim intro">${t("Make your login. You become the Owner of this installation.")}</p>
  <//>`;
}
