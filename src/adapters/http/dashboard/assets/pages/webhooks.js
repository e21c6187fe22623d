/* Webhooks and their delivery attempts. */

import { call, get } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { t, word } from "../core/i18n.js";
import { ofKind, useLoad } from "../core/live_data_hooks.js";
import { isAdmin } from "../core/signed_in_user.js";
import { Badge, Button, Card, Empty, Loaded, PageHead, Time } from "../ui/basic_components.js";
import { ask, confirmed, confirmedByName, reveal } from "../ui/dialog.js";
import { withStepUp } from "../ui/step_up.js";
import { tell } from "../ui/toasts.js";

const DEFAULT_TYPES = ["relay_changed", "telemetry", "device_online", "device_offline", "schedule_fired"];
const MORE_TYPES = ["state_changed", "input_changed", "command_result", "approval_requested", "approval_decided", "rule_disabled", "device_clock_skew"];
const FORMATS = {
  standard: () => t("Standard"),
  "cloudevents-structured": () => t("CloudEvents, structured"),
  "cloudevents-binary": () => t("CloudEvents, binary"),
};
const LOOK_EVERY = ofKind("webhook_", "relay_changed", "state_changed", "input_changed", "device_", "schedule_fired", "command_result");

export function Webhooks() {
  const data = useLoad((signal) => Promise.all([get("/webhooks", signal), get("/keys", signal)]), [], ofKind("webhook_", "key_"));
  const add = isAdmin() ? html`<${Button} kind="main" icon="plus" act=${() => create(data.data?.[1] ?? [], data.reload)}>${t("New webhook")}<//>` : null;
  return html`<${PageHead} title=${t("Webhooks")} sub=${t("Signed events of the devices that a key may see, sent to an address of yours.")} actions=${add} />
    <${Card}><${Loaded} of=${data}>${([webhooks, keys]) => webhooks.length ? html`<ul class="lines">${webhooks.map((webhook) => html`<${Webhook} key=${webhook.webhookId} webhook=${webhook} keyName=${keys.find(({ keyId }) => keyId === webhook.keyId)?.name ?? webhook.keyId} reload=${data.reload} />`)}</ul>` : html`<${Empty} icon="webhook" title=${t("No webhooks yet")} action=${add} />`}<//><//>`;
}

function Webhook({ webhook, keyName, reload }) {
  const { webhookId, url, enabled, disabledReason, secretPrefix, types, format } = webhook;
  const path = `/webhooks/${webhookId}`;
  const [open, setOpen] = useState(false);
  const ping = () => call("POST", `${path}/ping`).then(() => (setOpen(true), tell(t("A test event is on its way."))));
  const rotate = async () => {
    const made = await confirmed(t("A new secret?"), t("The old secret stops signing at once, also for retries."), t("Rotate"), () => withStepUp(() => call("POST", `${path}/rotate-secret`)));
    if (made) await reveal(t("The new secret"), t("It is shown only now."), [[t("Secret"), made.secret]]);
    await reload();
  };
  const toggle = () => withStepUp(() => call("PATCH", path, { enabled: !enabled })).then(reload);
  const host = hostOf(url);
  const gone = () => confirmedByName(t("Delete this webhook?"), t("Pending deliveries are cancelled."), host, t("Delete"), () => call("DELETE", path)).then((done) => done && reload());
  return html`<li class="entry" aria-label=${url}>
    <div class="grow"><strong class="url">${url}</strong> <${Badge} kind=${enabled ? "good" : "warn"}>${enabled ? t("enabled") : t("disabled")}<//>
      <small>${t("as {key}", { key: keyName })} · <code>${secretPrefix}…</code></small><small>${[types.map(word).join(", "), format === "standard" ? null : FORMATS[format]()].filter(Boolean).join(" · ")}</small>${disabledReason ? html`<small class="bad">${disabledReason}</small>` : null}</div>
    <div class="actions"><${Button} small act=${() => setOpen(!open)} aria-expanded=${String(open)}>${t("Deliveries")}<//>
      ${isAdmin() ? html`<${Button} small act=${ping}>${t("Ping")}<//><${Button} small act=${rotate}>${t("New secret")}<//><${Button} small act=${toggle}>${enabled ? t("Disable") : t("Enable")}<//><${Button} small kind="quiet danger" icon="trash" label=${t("Delete")} act=${gone} />` : null}</div>
    ${open ? html`<${Deliveries} path=${path} />` : null}
  </li>`;
}

const hostOf = (url) => {
  try {
    return new URL(url).host;
  } catch {
    return url;
  }
};

function Deliveries({ path }) {
  const attempts = useLoad((signal) => get(`${path}/deliveries`, signal), [path], LOOK_EVERY);
  const redeliver = ({ deliveryId }) => call("POST", `${path}/deliveries/${deliveryId}/redeliver`).then(() => (tell(t("It is queued again.")), attempts.reload()));
  const recover = () => askToRecover(path).then((done) => done && attempts.reload());
  return html`<div class="inner"><${Loaded} of=${attempts}>${(all) => html`<div class="line"><h3 class="grow">${t("The last attempts")}</h3>${isAdmin() ? html`<${Button} small act=${recover}>${t("Send what failed again")}<//>` : null}<${Button} small icon="rotate-ccw" act=${attempts.reload}>${t("Refresh")}<//></div>
    ${all.length ? html`<ul class="lines">${all.map((each) => html`<li class="execution" key=${each.deliveryId}>
      <${Badge} kind=${each.succeeded ? "good" : each.statusCode === null && each.error === null ? "wait" : "bad"}>${each.statusCode ?? (each.error ? t("failed") : t("in progress"))}<//>
      <div class="grow"><strong>${word(each.eventType)}</strong> <small>${[t("attempt {number}", { number: each.attempt }), each.error, each.durationMs === null ? null : `${each.durationMs} ms`].filter(Boolean).join(" · ")}${each.nextAttemptAt ? html` · ${t("again")} <${Time} at=${each.nextAttemptAt} />` : null}</small></div>
      <small><${Time} at=${each.createdAt} /></small>${isAdmin() ? html`<${Button} small act=${() => redeliver(each)}>${t("Send again")}<//>` : null}</li>`)}</ul>` : html`<p class="dim">${t("Nothing has been sent yet.")}</p>`}`}<//></div>`;
}

const HOUR_MS = 3_600_000;

async function askToRecover(path) {
  const made = await ask({
    title: t("Send what failed again?"),
    intro: t("Events that the receiver did not get are sent again, oldest first and one after the other. It gets nothing twice that it has confirmed."),
    fields: [{ name: "hours", label: t("Since when"), value: "24", options: [["1", t("an hour ago")], ["24", t("a day ago")], ["168", t("a week ago")]] }],
    action: t("Send again"),
    send: ({ hours }) => call("POST", `${path}/recover`, { since: Date.now() - Number(hours) * HOUR_MS }),
  });
  if (made) tell(made.deliveries ? t("{count} events are sent again.", { count: made.deliveries }) : t("There is nothing to send again."));
  return made;
}

async function create(keys, reload) {
  const made = await ask({
    title: t("New webhook"),
    intro: t("It receives signed events of the devices that its key may see."),
    fields: [
      { name: "url", label: t("Address"), type: "url", required: true, placeholder: "https://" },
      { name: "keyId", label: t("API key"), required: true, options: keys.map(({ keyId, name }) => [keyId, name]) },
      { name: "types", label: t("Events"), type: "many", value: DEFAULT_TYPES, options: [...DEFAULT_TYPES, ...MORE_TYPES].map((type) => [type, word(type)]) },
      { name: "format", label: t("Format"), value: "standard", options: Object.entries(FORMATS).map(([format, name]) => [format, name()]) },
    ],
    action: t("Create"),
    send: (values) => withStepUp(() => call("POST", "/webhooks", values)),
  });
  if (!made) return;
  await reveal(t("The signing secret"), t("It is shown only now."), [[t("Secret"), made.secret]]);
  await reload();
}
