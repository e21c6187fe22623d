/* The account's log, newest first and live; filters are the service's, so that old events are found too. */

import { get, getPage, saveFile } from "../core/api.js";
import { exact, localInput, whole } from "../core/format.js";
import { csvBlob } from "../core/csv.js";
import { html, useEffect, useState } from "../core/html.js";
import { serviceText, t, word } from "../core/i18n.js";
import { useLoad } from "../core/live_data_hooks.js";
import { place, setQuery } from "../core/router.js";
import { getCursorPage, useRows } from "../core/live_rows.js";
import { loadNames } from "../core/signed_in_user.js";
import { Button, Card, Empty, Loaded, More, PageHead, Time } from "../ui/basic_components.js";
import { ask } from "../ui/dialog.js";
import { Icon } from "../ui/icons.js";
import { tell } from "../ui/toasts.js";

const PAGE = 50;
const FEW = 200;
const EXPORT_PAGE = 200;
const EXPORT_AT_MOST = 20_000;

export function Log() {
  const { query } = place.value;
  const filters = new URLSearchParams(["type", "deviceId", "source", "text", "since", "until"].filter((name) => query[name]).map((name) => [name, query[name]]));
  const rows = useEventRows(filters);
  const page = useLoad((signal) => Promise.all([rows.load(signal), loadNames()]), [String(filters)], () => true);
  return html`
    <${PageHead} title=${t("Log")} actions=${html`<${Button} icon="download" act=${() => exportAll(filters)}>${t("Export")}<//>`} />
    <${Filters} query=${query} />
    <${Card}>
      <${Loaded} of=${page} lines=${10}>${([shown, named]) => shown.data.length ? html`<ul class="lines log">${shown.data.map((event) => html`<${EventLine} key=${event.id} event=${event} named=${named} withDevice />`)}</ul>
          <${More} next=${shown.next} load=${() => rows.more(shown, page.reload)} />` : html`<${Empty} icon="search" title=${t("No event matches")} action=${String(filters) ? html`<${Button} act=${() => setQuery({ type: "", deviceId: "", source: "", text: "", since: "", until: "" })}>${t("Show all events")}<//>` : null} />`}<//>
    <//>`;
}

export const useEventRows = (filters) => useRows(`/events?limit=${PAGE}&${filters}`, "id", getCursorPage);

function Filters({ query }) {
  const [text, setText] = useState(query.text ?? "");
  useEffect(() => setText(query.text ?? ""), [query.text]);
  const labels = { type: word, since: (at) => t("from {when}", { when: exact(Number(at)) }), until: (at) => t("until {when}", { when: exact(Number(at)) }) };
  const set = ["type", "source", "deviceId", "since", "until"].filter((name) => query[name]);
  return html`<form class="toolbar" onSubmit=${(event) => (event.preventDefault(), setQuery({ text: text.trim() }))}>
      <label class="search"><${Icon} name="search" size=${18} /><input type="search" value=${text} placeholder=${t("Text in the event")} aria-label=${t("Find events")} onInput=${(event) => setText(event.currentTarget.value)} onChange=${() => setQuery({ text: text.trim() })} /></label>
      <${Button} icon="list-checks" act=${() => choose(query)}>${t("Filter")}<//>
    </form>
    ${set.length ? html`<div class="chips">${set.map((name) => html`<button type="button" aria-label=${t("Remove the filter {name}", { name })} onClick=${() => setQuery({ [name]: "" })}>${(labels[name] ?? String)(query[`${name}Name`] ?? query[name])} <${Icon} name="x" size=${14} /></button>`)}</div>` : null}`;
}

async function choose(query) {
  const [{ data: devices, total }, members, keys] = await Promise.all([getPage(`/devices?limit=${FEW}&sort=name`), get("/members"), get("/keys")]);
  const device = total > FEW ? { value: query.deviceIdName ?? "", hint: t("Its name, or words that only it has") } : { value: query.deviceId ?? "", options: [["", t("all devices")], ...devices.map(({ deviceId, name }) => [deviceId, name])] };
  const sources = [...members.map(({ userId, name }) => [`user:${userId}`, name]), ...keys.map(({ keyId, name }) => [`apikey:${keyId}`, `${name} (${t("API key")})`]), ["device", t("the device")]];
  const when = (text) => (text ? String(new Date(text).getTime()) : "");
  await ask({
    title: t("Filter the log"),
    fields: [
      { name: "type", label: t("What"), value: query.type ?? "", options: [["", t("everything")], ...[...TYPES, ...MORE_TYPES].map((type) => [type, word(type)])] },
      { name: "source", label: t("Who"), value: query.source ?? "", options: [["", t("everybody")], ...sources] },
      { name: "deviceId", label: t("Device"), ...device },
      { name: "since", label: t("From"), type: "datetime-local", value: query.since ? localInput(Number(query.since)) : "" },
      { name: "until", label: t("Until"), type: "datetime-local", value: query.until ? localInput(Number(query.until)) : "" },
    ],
    action: t("Show"),
    send: async ({ type = "", source = "", deviceId: chosen = "", since, until }) => {
      const found = chosen === "" ? null : (devices.find(({ deviceId }) => deviceId === chosen) ?? (await findDevice(chosen)));
      const named = (list, id) => list.find(([each]) => each === id)?.[1] ?? "";
      setQuery({ type, source, sourceName: named(sources, source), deviceId: found?.deviceId ?? "", deviceIdName: found?.name ?? "", since: when(since), until: when(until) });
    },
  });
}

/* Of many devices; a name that only one has, or words that only one matches. */
async function findDevice(text) {
  const { data, total } = await getPage(`/devices?${new URLSearchParams({ search: text, limit: FEW, sort: "name" })}`);
  const exact = data.filter(({ name }) => name === text);
  if (exact.length === 1) return exact[0];
  if (total === 1) return data[0];
  const message = total ? t("{count} devices match. Type more of its name.", { count: whole(total) }) : t("No device matches");
  throw Object.assign(new Error(message), { details: [{ field: "deviceId", message }] });
}

/* The most wanted first. */
const TYPES = ["command_sent", "command_sent_to_group", "command_result", "relay_changed", "state_changed", "input_changed", "device_online", "device_offline", "device_clock_skew", "device_message_dropped", "device_refused", "device_message_set_aside", "clock_doubted", "clock_trusted", "schedule_fired", "schedule_skipped", "rule_matched", "rule_skipped", "rule_suppressed", "rule_disabled", "approval_requested", "approval_decided", "access_refused", "grant_created", "grant_updated", "grant_revoked", "credentials_generated", "credentials_revealed", "credentials_revoked", "device_registered", "device_updated", "device_deleted", "key_created", "key_deleted", "member_changed", "member_invited", "webhook_created", "webhook_disabled", "login", "login_failed"];
const MORE_TYPES = ["logout", "login_throttled", "identity_linked", "session_revoked", "service_session_created", "second_factor_enabled", "second_factor_failed", "second_factor_removed", "recovery_codes_renewed", "passkey_added", "passkey_removed", "step_up", "step_up_failed", "unlock_requested", "unlock_used", "otp_requested", "password_changed", "password_change_failed", "member_invitation_revoked", "project_created", "project_changed", "project_deleted", "key_changed", "key_rotated", "response_replayed", "approval_refused", "device_enabled", "device_disabled", "provisioning_code_created", "provisioning_code_revoked", "device_claim_requested", "device_claim_decided", "device_claimed", "group_created", "group_updated", "group_deleted", "group_members_changed", "device_type_created", "device_type_updated", "device_type_deleted", "credentials_reveal_refused", "command_defined", "command_updated", "command_removed", "schedule_created", "schedule_replaced", "schedule_updated", "schedule_cancelled", "rule_created", "rule_updated", "rule_deleted", "webhook_updated", "webhook_secret_rotated", "webhook_deleted", "webhook_recovery_started", "webhook_recovery_ended", "database_restored", "key_enabled", "channel_added", "channel_confirmed", "channel_deleted"];

const KINDS = [[/refused|failed|offline|lost|denied|disabled|deleted|revoked|dropped/, "bad"], [/skipped|suppressed|throttled|skew|doubted/, "warn"], [/online|approved|generated|created|registered|result/, "good"]];

export function EventLine({ event, named, withDevice }) {
  const { timestamp, eventType, description, deviceId, deviceName, source, address } = event;
  const kind = KINDS.find(([pattern]) => pattern.test(eventType))?.[1] ?? "info";
  const icon = { bad: "circle-x", warn: "triangle-alert", good: "circle-check", info: "circle" }[kind];
  return html`<li class="event">
    <span class=${`event-icon ${kind}`}><${Icon} name=${icon} size=${18} /></span>
    <div class="grow"><span>${serviceText(description)}</span>
      <small>${word(eventType)}${withDevice && deviceId ? html` · <a href=${`#/device/${deviceId}`}>${deviceName || deviceId}</a>` : null} · ${word(named(source))}${address ? ` · ${address}` : ""}</small></div>
    <small><${Time} at=${timestamp} /></small>
  </li>`;
}

async function exportAll(filters) {
  const rows = [["time", "type", "device", "deviceId", "description", "source", "address"]];
  for (let cursor = null; rows.length <= EXPORT_AT_MOST; ) {
    const page = await get(`/events?limit=${EXPORT_PAGE}&${filters}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
    rows.push(...page.data.map((each) => [new Date(each.timestamp).toISOString(), each.eventType, each.deviceName, each.deviceId, each.description, each.source, each.address]));
    if (!page.hasMore) break;
    ({ cursor } = page);
  }
  if (rows.length > EXPORT_AT_MOST) tell(t("The file has the newest {count} events. Choose an earlier end for those before.", { count: whole(rows.length - 1) }), "warn");
  saveFile(csvBlob(rows), "latchboard-log.csv");
}
