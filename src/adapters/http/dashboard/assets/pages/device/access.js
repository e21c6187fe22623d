/* Who may switch this device, when and how often; and why a call is allowed or denied. */

import { call, get } from "../../core/api.js";
import { channelBody, channelOptions, commandsFor, hasChannels, labelsOf } from "../../core/channels.js";
import { localInput, minuteClock, minuteOf, near, weekdays, zone } from "../../core/format.js";
import { html, useState } from "../../core/html.js";
import { n, serviceText, t } from "../../core/i18n.js";
import { ofKind, useLoad } from "../../core/live_data_hooks.js";
import { Badge, Button, Card, Empty, Loaded, Time } from "../../ui/basic_components.js";
import { ask, confirmed, DialogForm, openDialog } from "../../ui/dialog.js";
import { Fields, initialValues, readValues } from "../../ui/form_fields.js";
import { Icon } from "../../ui/icons.js";
import { withStepUp } from "../../ui/step_up.js";
import { activeSpans, WeekPicture } from "../../ui/grant_window_chart.js";

export function Access({ device, path }) {
  return html`
    <${Grants} path=${path} title=${t("Who may switch it")} none=${t("Only Owners and Admins may switch this device")} commandsOf=${() => get(`${path}/commands`)} channels=${device.channels} />
    <${Explain} path=${path} channels=${device.channels} />`;
}

/* Of a device or, with `isGroup`, of a group. `commandsOf`: loads the commands that a grant can name; `channels`: those of the device, or of the
   devices of the group. */
export function Grants({ path, title, none, commandsOf, channels, isGroup = false }) {
  const grants = useLoad((signal) => get(`${path}/grants`, signal), [path], ofKind("grant_", "key_", "member_"));
  const edit = async (grant) => {
    const [keys, members, commands] = await Promise.all([get("/keys"), get("/members"), commandsOf()]);
    if (await openDialog(GrantForm, { grant, path, keys, members, commands, channels, isGroup })) await grants.reload();
  };
  const add = html`<${Button} kind="main" icon="plus" act=${() => edit(null)}>${t("New grant")}<//>`;
  return html`<${Card} title=${title} actions=${grants.data?.length ? add : null}>
    <${Loaded} of=${grants}>${(all) => all.length ? html`<ul class="grants">${all.map((grant) => html`<${Grant} key=${grant.grantId} grant=${grant} path=${path} channels=${channels} isGroup=${isGroup} edit=${edit} reload=${grants.reload} />`)}</ul>` : html`<${Empty} icon="lock" title=${none} action=${add}>${t("A grant lets a member or an API key run chosen commands.")}<//>`}<//>
  <//>`;
}

const SCOPES = () => ({ READ: t("read and ask"), WRITE: t("read and switch"), FULL: t("everything") });

const COVERS = () => ({ device: t("this device"), project: t("the whole project"), group: t("a group of devices") });

function Grant({ grant, path, channels, isGroup, edit, reload }) {
  const { subject, commands, scope, rateLimitPerMinute, expiresAt, appliesVia, timezone, grantId } = grant;
  const onChannels = grant.channels.length ? ` · ${t("only {channels}", { channels: labelsOf(channels, grant.channels) })}` : hasChannels({ channels }) ? ` · ${t("all channels")}` : "";
  const over = expiresAt !== null && Date.parse(expiresAt) <= Date.now();
  const gone = () => confirmed(t("Delete the grant of {name}?", { name: subject.name }), t("It stops applying at once."), t("Delete"), () => call("DELETE", `${path}/grants/${grantId}`)).then((done) => done && reload());
  return html`<li class="grant">
    <div class="grow">
      <strong>${subject.name}</strong> <small class="inline">${subject.type === "apikey" ? t("API key") : t("member")}</small>
      <p>${commands.includes("*") ? t("all commands") : commands.join(", ")} ${onChannels} · ${SCOPES()[scope]} · ${isGroup ? t("every device of the group") : COVERS()[appliesVia]}</p>
      <p class="dim">${[hours(grant), timezone, rateLimitPerMinute ? n("{count} call per minute", "{count} calls per minute", rateLimitPerMinute) : null].filter(Boolean).join(" · ")} ${over ? html`<${Badge} kind="bad">${t("expired")}<//>` : expiresAt ? html`· ${t("until")} <${Time} at=${expiresAt} />` : null}</p>
      <div class="actions">${appliesVia === "group" && !isGroup ? html`<a href="#/fleet/groups">${t("Change it at its group")}</a>` : html`<${Button} small icon="pencil" act=${() => edit(grant)}>${t("Edit")}<//><${Button} small kind="quiet danger" icon="trash" act=${gone}>${t("Delete")}<//>`}</div>
    </div>
    <${WeekPicture} spans=${activeSpans(grant)} label=${t("Active")} />
  </li>`;
}

function hours({ activeDays, activeFromMinute: from, activeToMinute: to }) {
  const names = weekdays();
  const days = activeDays.length && activeDays.length < 7 ? activeDays.map((day) => names[day]).join(" ") : t("every day");
  return from === null ? t("{days}, at any time", { days }) : `${days}, ${minuteClock(from)}–${minuteClock(to)}`;
}

/* A grant may name channels that the device has no more, or that another device of the project has. */
const grantedChannels = (channels, grant) => [...channelOptions(channels), ...(grant?.channels ?? []).filter((each) => !channels.some(({ channel }) => channel === each)).map((each) => [String(each), labelsOf(channels, [each])])];

function GrantForm({ grant, path, keys, members, commands, channels, isGroup, done }) {
  const names = new Set([...commands.map(({ name }) => name), ...(grant?.commands ?? []).filter((name) => name !== "*")]);
  const fields = [
    ...(grant ? [] : [{ name: "who", label: t("Who"), options: [...keys.map(({ keyId, name }) => [`apiKeyId:${keyId}`, `${name} (${t("API key")})`]), ...members.map(({ membershipId, name, role }) => [`membershipId:${membershipId}`, `${name} (${role})`])] }]),
    { name: "all", label: t("All commands"), type: "checkbox", value: grant?.commands.includes("*") ?? false },
    { name: "commands", label: t("Commands"), type: "many", when: ({ all }) => !all, value: (grant?.commands ?? ["ON", "OFF"]).filter((name) => name !== "*"), options: [...names].map((name) => [name, name]) },
    ...(hasChannels({ channels }) || grant?.channels.length ? [{ name: "channels", label: t("Channels (none: all)"), type: "checks", value: (grant?.channels ?? []).map(String), options: grantedChannels(channels, grant), hint: t("A key that may switch the light need not open the gate.") }] : []),
    ...(grant || isGroup ? [] : [{ name: "appliesVia", label: t("Covers"), options: [["device", t("this device")], ["project", t("every device of its project")]] }]),
    { name: "scope", label: t("Scope"), value: grant?.scope ?? "WRITE", options: Object.entries(SCOPES()) },
    { name: "activeDays", label: t("Days (none: every day)"), type: "days", value: grant?.activeDays ?? [] },
    { name: "from", label: t("From"), type: "time", value: minuteClock(grant?.activeFromMinute) },
    { name: "to", label: t("To"), type: "time", value: minuteClock(grant?.activeToMinute), hint: t("Earlier than the start: the window passes midnight.") },
    { name: "timezone", label: t("Time zone"), value: grant?.timezone ?? zone() },
    { name: "rateLimitPerMinute", label: t("Calls per minute"), type: "integer", min: 1, max: 1000, value: grant?.rateLimitPerMinute ?? "" },
    { name: "expires", label: t("Expires"), type: "datetime-local", value: grant?.expiresAt ? localInput(grant.expiresAt) : "" },
  ];
  const [values, setValues] = useState(() => initialValues(fields));
  const [faults, setFaults] = useState({});
  const mark = (details) => {
    setFaults(Object.fromEntries(details.map(({ field, message }) => [PLACES[field] ?? field.split(".")[0], message])));
    return [];
  };
  const send = () => {
    const { who, all, from, to, expires, commands: chosen = [], channels: onlyOn, ...rest } = readValues(fields, values);
    const body = { ...rest, commands: all ? ["*"] : chosen, ...(onlyOn ? { channels: onlyOn.map(Number) } : {}), activeFromMinute: minuteOf(from), activeToMinute: minuteOf(to), expiresAt: expires ? new Date(expires).toISOString() : null, rateLimitPerMinute: rest.rateLimitPerMinute ?? null };
    if (grant) return withStepUp(() => call("PATCH", `${path}/grants/${grant.grantId}`, body));
    const [kind, id] = who.split(":");
    return withStepUp(() => call("POST", `${path}/grants`, { ...Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null)), [kind]: id }));
  };
  const spans = activeSpans({ activeDays: values.activeDays, activeFromMinute: minuteOf(values.from), activeToMinute: minuteOf(values.to) ?? minuteOf(values.from) });
  return html`<${DialogForm} title=${grant ? t("Edit the grant of {name}", { name: grant.subject.name }) : t("New grant")} action=${grant ? t("Save") : t("Grant")} done=${done} mark=${mark} send=${send}>
    <${Fields} fields=${fields} values=${values} faults=${faults} onChange=${(name, value) => setValues((before) => ({ ...before, [name]: value }))} />
    <${WeekPicture} spans=${spans} label=${t("Active")} />
  <//>`;
}

const PLACES = { activeFromMinute: "from", activeToMinute: "to", expiresAt: "expires", apiKeyId: "who", membershipId: "who" };

function Explain({ path, channels }) {
  const [said, setSaid] = useState(null);
  const explain = async () => {
    const [keys, commands] = await Promise.all([get("/keys"), get(`${path}/commands`)]);
    const fields = [
      { name: "apiKeyId", label: t("API key"), options: keys.map(({ keyId, name }) => [keyId, name]), required: true },
      { name: "cmd", label: t("Command"), options: [...new Map(commands.map(({ name, label }) => [name, `${label} (${name})`]))] },
      ...(hasChannels({ channels }) ? [{ name: "channel", label: t("Channel"), options: channelOptions(channels) }] : []),
      { name: "address", label: t("Calls from (an IP address)"), hint: t("Empty: its networks are only named.") },
    ];
    const answer = await ask({ title: t("Why is a call allowed or denied?"), fields, action: t("Explain"), send: (values) => get(`${path}/access?${new URLSearchParams(values)}`) });
    if (answer) setSaid(answer);
  };
  return html`<${Card} title=${t("Explain access")} actions=${html`<${Button} act=${explain}>${t("Explain")}<//>`}>
    <p class="dim">${t("Says for a key and a command which grant lets it pass, or what is missing and when it would pass.")}</p>
    ${said ? html`<output class=${`life ${said.allowed ? "good" : "bad"}`}><${Icon} name=${said.allowed ? "circle-check" : "circle-x"} size=${18} /><span><strong>${said.allowed ? t("allowed") : t("denied")}</strong> · ${serviceText(said.message)} ${said.waitsForApproval ? t("It would wait for approval.") : ""} ${said.passesAt ? t("It is allowed from {when}.", { when: near(said.passesAt) }) : ""} ${said.allowedNetworks.length ? t("The key works only from {networks}.", { networks: said.allowedNetworks.join(", ") }) : ""} ${said.allowed && said.expiresAt ? t("The key works until {when}.", { when: near(said.expiresAt) }) : ""}</span></output>` : null}
  <//>`;
}
