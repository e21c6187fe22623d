/* The signed-in person: password, sessions, and what is theirs in this browser. */

import { call, get } from "../core/api.js";
import { html } from "../core/html.js";
import { chooseLanguage, chosenLanguage, LANGUAGES, t, word } from "../core/i18n.js";
import { useLoad } from "../core/live_data_hooks.js";
import { programOf } from "../core/user_agent.js";
import { isAdmin, me } from "../core/signed_in_user.js";
import { Badge, Button, Card, Facts, Loaded, PageHead, Time } from "../ui/basic_components.js";
import { ask, confirmed } from "../ui/dialog.js";
import { withStepUp } from "../ui/step_up.js";
import { tell } from "../ui/toasts.js";
import { SignOut } from "../ui/sign_out.js";
import { NotificationCards } from "./notifications.js";
import { MadeLately, offerToEnd } from "./made_lately.js";
import { SecondFactorCard } from "./second_factor.js";

export function Account() {
  const { name, email, role, accountName, deviceCount } = me.value;
  const language = (event) => {
    chooseLanguage(event.currentTarget.value);
    location.reload();
  };
  return html`<${PageHead} title=${name} actions=${html`<${SignOut} />`} />
    <${Card} title=${t("Account")} actions=${html`<${Button} act=${password}>${t("Change the password")}<//>`}>
      <${Facts} of=${[[t("Email"), email], [t("Role"), word(role)], [t("Account"), accountName], [t("Devices"), deviceCount]]} />
    <//>
    <${SecondFactorCard} />
    <${NotificationCards} />
    <${Sessions} />
    ${isAdmin() ? html`<${MadeLately} />` : null}
    <${Card} title=${t("This browser")}>
      <div class="field"><label for="language">${t("Language")}</label><select id="language" value=${chosenLanguage()} onChange=${language}><option value="">${t("as the browser")}</option>${Object.entries(LANGUAGES).map(([code, label]) => html`<option value=${code} selected=${code === chosenLanguage()}>${label}</option>`)}</select></div>
    <//>`;
}

async function password() {
  const changed = await ask({
    title: t("Change the password"),
    intro: t("All your sessions end, this one too: sign in again. Your channels are told nothing until you confirm each. Then look on this page at what was made lately."),
    fields: [
      { name: "currentPassword", label: t("Your password"), type: "password", required: true },
      { name: "newPassword", label: t("New password"), type: "password", required: true, hint: t("8 to 256 characters"), autocomplete: "new-password" },
    ],
    action: t("Change"),
    send: (values) => call("POST", "/auth/password/change", values),
  });
  if (changed) tell(t("The password has been changed."));
}

function Sessions() {
  const sessions = useLoad((signal) => get("/auth/sessions", signal), [], ({ eventType }) => /^(login|logout|session_)/.test(eventType));
  const end = (session) => confirmed(t("Sign this session out?"), session.userAgent, t("Sign out"), () => call("DELETE", `/auth/sessions/${session.sessionId}`)).then((done) => done && sessions.reload());
  const endOthers = () => confirmed(t("Sign out everywhere else?"), t("All your other sessions end at once. Your channels are told nothing until you confirm each."), t("Sign out"), () => withStepUp(() => call("DELETE", "/auth/sessions"))).then((done) => done && sessions.reload().then(() => (isAdmin() ? offerToEnd() : null)));
  return html`<${Card} title=${t("Where you are signed in")} actions=${sessions.data?.length > 1 ? html`<${Button} kind="danger" act=${endOthers}>${t("Sign out everywhere else")}<//>` : null}>
    <${Loaded} of=${sessions}>${(all) => html`<ul class="lines">${all.map((session) => html`<li class="entry" key=${session.sessionId}><div class="grow"><strong>${programOf(session.userAgent)}</strong> ${session.current ? html`<${Badge} kind="good">${t("this one")}<//>` : null}<small>${session.address} · ${t("last used")} <${Time} at=${session.lastUsedAt} /></small></div>${session.current ? null : html`<${Button} small act=${() => end(session)}>${t("Sign out")}<//>`}</li>`)}</ul>`}<//>
  <//>`;
}
