/* The account's log, newest first and live; filters are the service's, so that old events are found too. */

import { get, saveFile } from "../core/api.js";
import { exact, localInput } from "../core/format.js";
import { csvBlob } from "../core/csv.js";
import { html, useEffect, useState } from "../core/html.js";
import { t, word } from "../core/i18n.js";
import { useLoad } from "../core/live.js";
import { place, setQuery } from "../core/router.js";
import { loadNames } from "../core/session.js";
import { Button, Card, Empty, Loaded, More, PageHead, Time } from "../ui/base.js";
import { ask } from "../ui/dialog.js";
import { Icon } from "../ui/icons.js";

const PAGE = 50;
const EXPORT_PAGE = 200;
const EXPORT_AT_MOST = 20_000;

export function Log() {
  const { query } = place.value;
  const [older, setOlder] = useState({ data: [], cursor: undefined });
  const filters = new URLSearchParams(["type", "deviceId", "source", "text", "since", "until"].filter((name) => query[name]).map((name) => [name, query[name]]));
  const page = useLoad((signal) => Promise.all([get(`/events?limit=${PAGE}&${filters}`, signal), loadNames(signal)]), [String(filters)], () => true);
  useEffect(() => setOlder({ data: [], cursor: undefined }), [String(filters)]);
  const more = async () => {
    const cursor = older.cursor ?? page.data[0].cursor;
    const next = await get(`/events?limit=${PAGE}&cursor=${encodeURIComponent(cursor)}&${filters}`);
    setOlder({ data: [...older.data, ...next.data], cursor: next.hasMore ? next.cursor : null });
  };
  return html`
    <${PageHead} title=${t("Log")} actions=${html`<${Button} icon="download" act=${() => exportAll(filters)}>${t("Export")}<//>`} />
    <${Filters} query=${query} />
    <${Card}>
      <${Loaded} of=${page} lines=${10}>${([{ data, hasMore }, named]) => {
        // New events push others to the next page: an event that is on both is shown once.
        const seen = new Set(data.map(({ id }) => id));
        const all = [...data, ...older.data.filter(({ id }) => !seen.has(id))];
        return all.length ? html`<ul class="lines log">${all.map((event) => html`<${EventLine} key=${event.id} event=${event} named=${named} withDevice />`)}</ul>
          <${More} next=${older.cursor === undefined ? hasMore : older.cursor} load=${more} />` : html`<${Empty} icon="search" title=${t("No event matches")} action=${String(filters) ? html`<${Button} act=${() => setQuery({ type: "", deviceId: "", source: "", text: "", since: "", until: "" })}>${t("Show all events")}<//>` : null} />`;
      }}<//>
    <//>`;
}

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
  const [devices, members, keys] = await Promise.all([get("/devices?limit=200&sort=name"), get("/members"), get("/keys")]);
  const sources = [...members.map(({ userId, name }) => [`user:${userId}`, name]), ...keys.map(({ keyId, name }) => [`apikey:${keyId}`, `${name} (${t("API key")})`]), ["device", t("the device")]];
  const when = (text) => (text ? String(new Date(text).getTime()) : "");
  await ask({
    title: t("Filter the log"),
    fields: [
      { name: "type", label: t("What"), value: query.type ?? "", options: [["", t("everything")], ...TYPES.map((type) => [type, word(type)])] },
      { name: "source", label: t("Who"), value: query.source ?? "", options: [["", t("everybody")], ...sources] },
      { name: "deviceId", label: t("Device"), value: query.deviceId ?? "", options: [["", t("all devices")], ...devices.map(({ deviceId, name }) => [deviceId, name])] },
      { name: "since", label: t("From"), type: "datetime-local", value: query.since ? localInput(Number(query.since)) : "" },
      { name: "until", label: t("Until"), type: "datetime-local", value: query.until ? localInput(Number(query.until)) : "" },
    ],
    action: t("Show"),
    send: async ({ type = "", source = "", deviceId = "", since, until }) => {
      const named = (list, id) => list.find(([each]) => each === id)?.[1] ?? "";
      setQuery({ type, source, sourceName: named(sources, source), deviceId, deviceIdName: devices.find((each) => each.deviceId === deviceId)?.name ?? "", since: when(since), until: when(until) });
    },
  });
}

const TYPES = ["command_sent", "command_sent_to_group", "command_result", "relay_changed", "device_online", "device_offline", "device_clock_skew", "device_message_dropped", "device_message_set_aside", "schedule_fired", "schedule_skipped", "rule_matched", "rule_skipped", "rule_suppressed", "rule_disabled", "approval_requested", "approval_decided", "access_refused", "grant_created", "grant_updated", "grant_revoked", "credentials_generated", "credentials_revealed", "credentials_revoked", "device_registered", "device_updated", "device_deleted", "key_created", "key_deleted", "member_changed", "member_invited", "webhook_created", "webhook_disabled", "login", "login_failed"];

const KINDS = [[/refused|failed|offline|lost|denied|disabled|deleted|revoked|dropped/, "bad"], [/skipped|suppressed|throttled|skew/, "warn"], [/online|approved|generated|created|registered|result/, "good"]];

export function EventLine({ event, named, withDevice }) {
  const { timestamp, eventType, description, deviceId, deviceName, source, address } = event;
  const kind = KINDS.find(([pattern]) => pattern.test(eventType))?.[1] ?? "info";
  const icon = { bad: "circle-x", warn: "triangle-alert", good: "circle-check", info: "circle" }[kind];
  return html`<li class="event">
    <span class=${`event-icon ${kind}`}><${Icon} name=${icon} size=${18} /></span>
    <div class="grow"><span>${description}</span>
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
  saveFile(csvBlob(rows), "latchboard-log.csv");
}
