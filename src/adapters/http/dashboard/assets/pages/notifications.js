/* What the person is told and where: by the service on their channels, and in this browser while a tab is open. */

import { call, get } from "../core/api.js";
import { minuteClock, minuteOf, zone } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { errorText, language, t } from "../core/i18n.js";
import { ofKind, useLoad } from "../core/live_data_hooks.js";
import { keepPreferences, preferences } from "../core/browser_notifications.js";
import { programOf } from "../core/user_agent.js";
import { canInstall, canPush, install, keepOwnChannel, needsInstall, ownChannel, subscribe, unsubscribe } from "../core/push_subscription.js";
import { me } from "../core/signed_in_user.js";
import { Badge, Button, Card, Empty, Loaded, Time } from "../ui/basic_components.js";
import { ask, confirmed } from "../ui/dialog.js";
import { Fields } from "../ui/form_fields.js";
import { tell } from "../ui/toasts.js";
import { withStepUp } from "../ui/step_up.js";

const CHANNELS = "/auth/notifications/channels";
const KINDS = { MAIL: "Mail", WEB_PUSH: "Browser", NTFY: "ntfy", TELEGRAM: "Telegram" };

const topics = () => [["APPROVALS", t("An approval waits")], ["OFFLINE", t("A device stays offline")], ["RULES", t("A rule was disabled")], ["WEBHOOKS", t("A webhook was disabled")], ["DEVICES", t("A device's clock or messages are wrong")], ["DEAD_LETTERS", t("A message was set aside")]];

export function NotificationCards() {
  const settings = useLoad((signal) => get("/auth/notifications", signal), []);
  const channels = useLoad((signal) => get(CHANNELS, signal), [], ofKind("channel_", "session_"));
  const reload = () => Promise.all([settings.reload(), channels.reload()]);
  return html`<${Card} title=${t("Notifications")}>
      <p class="dim">${t("By the service, on all your channels, also while no browser is open. You are always told when somebody gets access; the rest is up to you.")}</p>
      <${Loaded} of=${settings}>${(found) => html`<${SettingsForm} key=${found.mail} settings=${found} reload=${reload} />`}<//>
    <//>
    <${Channels} channels=${channels} reload=${reload} />
    <${ThisBrowser} />`;
}

function SettingsForm({ settings, reload }) {
  const [values, setValues] = useState(() => ({ topics: settings.topics, mail: settings.mail, offlineMinutes: settings.offlineMinutes, quietFrom: minuteClock(settings.quietFromMinute), quietTo: minuteClock(settings.quietToMinute) }));
  const fields = [
    { name: "topics", label: t("Tell me when"), type: "many", options: topics() },
    { name: "mail", label: t("By mail to {email}", { email: me.value.email }), type: "checkbox" },
    { name: "offlineMinutes", label: t("Offline for at least (minutes)"), type: "integer", min: 1, when: () => values.topics.includes("OFFLINE") },
    { name: "quietFrom", label: t("Quiet from"), type: "time" },
    { name: "quietTo", label: t("Quiet until"), type: "time", hint: t("Everything waits until the quiet hours end, requests for approval too.") },
  ];
  const save = async () => {
    await withStepUp(() => call("PUT", "/auth/notifications", { topics: values.topics, mail: values.mail, offlineMinutes: Number(values.offlineMinutes), quietFromMinute: minuteOf(values.quietFrom), quietToMinute: minuteOf(values.quietTo), timezone: zone(), language: language() }));
    tell(t("Saved."));
    await reload();
  };
  return html`<${Fields} fields=${fields} values=${values} onChange=${(name, value) => setValues((before) => ({ ...before, [name]: value }))} prefix="told" />
    <${Button} kind="main" act=${save}>${t("Save the notification settings")}<//>`;
}

function Channels({ channels, reload }) {
  const add = async (name, destination) => {
    const made = await withStepUp(() => call("POST", CHANNELS, { name, ...destination }));
    await reload();
    return made;
  };
  const addBrowser = async () => {
    const { publicKey } = await get("/auth/notifications/push-key");
    const { channelId } = await add(programOf(navigator.userAgent).slice(0, 64), { webPush: await subscribe(publicKey) });
    keepOwnChannel(channelId);
    tell(t("This browser is told from now on. Send a test to see how it looks."));
  };
  const here = needsInstall() ? html`<p class="dim">${t("On an iPhone or iPad, first put Latchboard on the home screen: Share, then Add to Home Screen. Open it there and allow notifications.")}</p>` : null;
  return html`<${Card} title=${t("Channels")}>
    <p class="dim">${t("Where you are told. Tokens are stored encrypted and never shown again.")}</p>${here}
    <${Loaded} of=${channels}>${(all) => all.length ? html`<ul class="lines">${all.map((channel) => html`<${Channel} key=${channel.channelId} channel=${channel} reload=${reload} />`)}</ul>` : html`<${Empty} icon="bell-ring" title=${t("No channel yet")}>${t("Add this browser, a topic of ntfy or a chat of Telegram.")}<//>`}<//>
    <div class="actions">
      ${canPush() && !needsInstall() ? html`<${Button} icon="bell-ring" act=${addBrowser}>${t("Push to this browser")}<//>` : null}
      ${canInstall() ? html`<${Button} icon="download" act=${install}>${t("Install as an app")}<//>` : null}
      <${Button} icon="plus" act=${() => addNtfy(add)}>ntfy<//>
      <${Button} icon="plus" act=${() => addTelegram(add)}>Telegram<//>
    </div>
  <//>`;
}

/* The details are the service's and in English; the code says what to do. */
const channelError = (code, message) => errorText({ code: `CHANNEL_${code}`, message });

function Channel({ channel: { channelId, kind, name, target, lastSentAt, lastError, lastErrorCode, lastErrorAt, suspendedAt }, reload }) {
  const test = async () => {
    const { sent, error, errorCode } = await call("POST", `${CHANNELS}/${channelId}/test`);
    tell(sent ? t("The test was accepted.") : channelError(errorCode, error), sent ? "good" : "warn");
    await reload();
  };
  const remove = async () => {
    const done = await confirmed(t("Delete the channel “{name}”?", { name }), t("Nothing is sent to it any more."), t("Delete"), () => withStepUp(() => call("DELETE", `${CHANNELS}/${channelId}`)));
    if (!done) return;
    if (ownChannel() === channelId) await unsubscribe();
    await reload();
  };
  const confirm = () => withStepUp(() => call("POST", `${CHANNELS}/${channelId}/confirm`)).then(reload);
  const mine = ownChannel() === channelId ? html` <${Badge} kind="good">${t("this one")}<//>` : null;
  const paused = suspendedAt ? html` <${Badge} kind="warn">${t("suspended")}<//>` : null;
  const last = suspendedAt ? html`<small class="bad">${t("Nothing is sent to it since the password was changed or everything was signed out. Confirm it if it is yours; else delete it.")}</small>` : lastError ? html`<small class="bad" title=${lastError}>${channelError(lastErrorCode, lastError)} <${Time} at=${lastErrorAt} /></small>` : lastSentAt ? html`<small>${t("last sent")} <${Time} at=${lastSentAt} /></small>` : null;
  return html`<li class="entry" aria-label=${name}><div class="grow"><strong>${kind === "MAIL" ? t("Mail") : name}</strong>${mine}${paused}<small>${[KINDS[kind] === name ? null : KINDS[kind], kind === "MAIL" ? me.value.email : target].filter(Boolean).join(" · ")}</small>${last}</div>
    ${suspendedAt ? html`<${Button} small kind="main" act=${confirm} label=${t("Confirm {name}", { name })}>${t("Confirm")}<//>` : html`<${Button} small act=${test} label=${t("Send a test to {name}", { name })}>${t("Send a test")}<//>`}<${Button} small kind="danger" icon="trash" label=${t("Delete {name}", { name })} act=${remove} /></li>`;
}

const addNtfy = (add) => ask({
  title: t("Add a topic of ntfy"),
  intro: t("Whoever knows the topic reads along, unless the server asks for a token. Without a token and without a second factor, requests for approval lead to the sign-in."),
  fields: [
    { name: "name", label: t("Name"), required: true, value: "ntfy", maxlength: 64 },
    { name: "url", label: t("Server"), type: "url", required: true, value: "https://ntfy.sh" },
    { name: "topic", label: t("Topic"), required: true, maxlength: 64 },
    { name: "token", label: t("Access token (optional)"), type: "password", autocomplete: "off" },
  ],
  action: t("Add"),
  send: ({ name, ...ntfy }) => add(name, { ntfy }),
});

const addTelegram = (add) => ask({
  title: t("Add a chat of Telegram"),
  intro: t("Make a bot with @BotFather and write to it once; then it may write to you."),
  fields: [
    { name: "name", label: t("Name"), required: true, value: "Telegram", maxlength: 64 },
    { name: "botToken", label: t("Token of the bot"), type: "password", required: true, autocomplete: "off" },
    { name: "chatId", label: t("Id of the chat"), required: true, maxlength: 64 },
  ],
  action: t("Add"),
  send: ({ name, ...telegram }) => add(name, { telegram }),
});

/* While a tab is open. Their permission is the browser's to give. */
function ThisBrowser() {
  const [values, setValues] = useState(preferences);
  const [granted, setGranted] = useState(globalThis.Notification?.permission);
  const put = (name, value) => {
    setValues((before) => ({ ...before, [name]: value }));
    if (name !== "offlineMinutes" || Number(value) > 0) keepPreferences({ [name]: name === "offlineMinutes" ? Number(value) : value });
  };
  const fields = [
    { name: "kinds", label: t("Show me when"), type: "many", options: topics() },
    { name: "offlineMinutes", label: t("Offline for at least (minutes)"), type: "integer", min: 1, when: () => values.kinds.includes("OFFLINE") },
    { name: "quietFrom", label: t("Quiet from"), type: "time" },
    { name: "quietTo", label: t("Quiet until"), type: "time", hint: t("In quiet hours notices appear on the page only.") },
  ];
  const allow = () => Notification.requestPermission().then(setGranted);
  const action = granted === "default" ? html`<${Button} icon="bell-ring" act=${allow}>${t("Allow notifications")}<//>` : granted === "granted" ? html`<${Badge} kind="good">${t("allowed")}<//>` : html`<${Badge} kind="off">${granted === "denied" ? t("blocked by the browser") : t("needs TLS")}<//>`;
  return html`<${Card} title=${t("While a tab is open")} actions=${action}>
    <p class="dim">${t("On every page, and from the system while a tab is open in the background.")}</p>
    <${Fields} fields=${fields} values=${values} onChange=${put} prefix="notify" />
  <//>`;
}
