/* The signed-in person: password, sessions, and what is theirs in this browser. */

import { call, get } from "../core/api.js";
import { minuteClock, zone } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { chooseLanguage, chosenLanguage, LANGUAGES, t, word } from "../core/i18n.js";
import { useLoad } from "../core/live.js";
import { keepPreferences, preferences } from "../core/notify.js";
import { programOf } from "../core/program.js";
import { me } from "../core/session.js";
import { Badge, Button, Card, Facts, Loaded, PageHead, Time } from "../ui/base.js";
import { ask, confirmed } from "../ui/dialog.js";
import { Fields } from "../ui/fields.js";
import { tell } from "../ui/notices.js";
import { SignOut } from "../ui/sign_out.js";
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
    <${Notifications} />
    <${Mails} />
    <${Sessions} />
    <${Card} title=${t("This browser")}>
      <div class="field"><label for="language">${t("Language")}</label><select id="language" value=${chosenLanguage()} onChange=${language}><option value="">${t("as the browser")}</option>${Object.entries(LANGUAGES).map(([code, label]) => html`<option value=${code} selected=${code === chosenLanguage()}>${label}</option>`)}</select></div>
    <//>`;
}

async function password() {
  const changed = await ask({
    title: t("Change the password"),
    intro: t("All your sessions end, this one too: sign in again."),
    fields: [
      { name: "currentPassword", label: t("Your password"), type: "password", required: true },
      { name: "newPassword", label: t("New password"), type: "password", required: true, hint: t("8 to 256 characters"), autocomplete: "new-password" },
    ],
    action: t("Change"),
    send: (values) => call("POST", "/auth/password/change", values),
  });
  if (changed) tell(t("The password has been changed."));
}

const kinds = () => [["approvals", t("An approval waits")], ["offline", t("A device stays offline")], ["rules", t("A rule was disabled")], ["webhooks", t("A webhook was disabled")], ["devices", t("A device's clock or messages are wrong")]];

/* While a tab is open. Their permission is the browser's to give. */
function Notifications() {
  const [values, setValues] = useState(preferences);
  const [granted, setGranted] = useState(globalThis.Notification?.permission);
  const put = (name, value) => {
    setValues((before) => ({ ...before, [name]: value }));
    if (name !== "offlineMinutes" || Number(value) > 0) keepPreferences({ [name]: name === "offlineMinutes" ? Number(value) : value });
  };
  const fields = [
    { name: "kinds", label: t("Tell me when"), type: "many", options: kinds() },
    { name: "offlineMinutes", label: t("Offline for at least (minutes)"), type: "integer", min: 1, when: () => values.kinds.includes("offline") },
    { name: "quietFrom", label: t("Quiet from"), type: "time" },
    { name: "quietTo", label: t("Quiet until"), type: "time", hint: t("In quiet hours notices appear on the page only.") },
  ];
  const allow = () => Notification.requestPermission().then(setGranted);
  const action = granted === "default" ? html`<${Button} icon="bell-ring" act=${allow}>${t("Allow notifications")}<//>` : granted === "granted" ? html`<${Badge} kind="good">${t("allowed")}<//>` : html`<${Badge} kind="off">${granted === "denied" ? t("blocked by the browser") : t("needs TLS")}<//>`;
  return html`<${Card} title=${t("Notifications in this browser")} actions=${action}>
    <p class="dim">${t("On every page, and from the system while a tab is open in the background.")}</p>
    <${Fields} fields=${fields} values=${values} onChange=${put} prefix="notify" />
  <//>`;
}

/* By the service, to the person's address: also while no browser is open. */
function Mails() {
  const loaded = useLoad((signal) => get("/auth/notifications", signal), []);
  return html`<${Card} title=${t("Notifications by mail")}>
    <p class="dim">${t("To {email}, also while no browser is open. Nothing is sent unless you choose it.", { email: me.value.email })}</p>
    <${Loaded} of=${loaded}>${(settings) => html`<${MailForm} settings=${settings} reload=${loaded.reload} />`}<//>
  <//>`;
}

function MailForm({ settings, reload }) {
  const [values, setValues] = useState(() => ({ topics: settings.topics, offlineMinutes: settings.offlineMinutes, quietFrom: clockOf(settings.quietFromMinute), quietTo: clockOf(settings.quietToMinute) }));
  const fields = [
    { name: "topics", label: t("Mail me when"), type: "many", options: kinds() },
    { name: "offlineMinutes", label: t("Offline for at least (minutes)"), type: "integer", min: 1, when: () => values.topics.includes("offline") },
    { name: "quietFrom", label: t("Quiet from"), type: "time" },
    { name: "quietTo", label: t("Quiet until"), type: "time", hint: t("Mails wait until the quiet hours end.") },
  ];
  const save = async () => {
    await call("PUT", "/auth/notifications", { topics: values.topics, offlineMinutes: Number(values.offlineMinutes), quietFromMinute: minuteOf(values.quietFrom), quietToMinute: minuteOf(values.quietTo), timezone: zone() });
    tell(t("Saved."));
    await reload();
  };
  return html`<${Fields} fields=${fields} values=${values} onChange=${(name, value) => setValues((before) => ({ ...before, [name]: value }))} prefix="mail" />
    <${Button} kind="main" act=${save}>${t("Save the mail settings")}<//>`;
}

const clockOf = (minute) => (minute === null ? "" : minuteClock(minute));
const minuteOf = (text) => (text ? Number(text.slice(0, 2)) * 60 + Number(text.slice(3, 5)) : null);

function Sessions() {
  const sessions = useLoad((signal) => get("/auth/sessions", signal), [], ({ eventType }) => /^(login|logout|session_)/.test(eventType));
  const end = (session) => confirmed(t("Sign this session out?"), session.userAgent, t("Sign out"), () => call("DELETE", `/auth/sessions/${session.sessionId}`)).then((done) => done && sessions.reload());
  const endOthers = () => confirmed(t("Sign out everywhere else?"), t("All your other sessions end at once."), t("Sign out"), () => call("DELETE", "/auth/sessions")).then((done) => done && sessions.reload());
  return html`<${Card} title=${t("Where you are signed in")} actions=${sessions.data?.length > 1 ? html`<${Button} kind="danger" act=${endOthers}>${t("Sign out everywhere else")}<//>` : null}>
    <${Loaded} of=${sessions}>${(all) => html`<ul class="lines">${all.map((session) => html`<li class="entry" key=${session.sessionId}><div class="grow"><strong>${programOf(session.userAgent)}</strong> ${session.current ? html`<${Badge} kind="good">${t("this one")}<//>` : null}<small>${session.address} · ${t("last used")} <${Time} at=${session.lastUsedAt} /></small></div>${session.current ? null : html`<${Button} small act=${() => end(session)}>${t("Sign out")}<//>`}</li>`)}</ul>`}<//>
  <//>`;
}
