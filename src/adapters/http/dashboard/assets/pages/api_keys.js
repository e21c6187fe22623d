/* API keys. A new key can do nothing without a grant. */

import { call, get } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { localInput } from "../core/format.js";
import { n, t } from "../core/i18n.js";
import { ofKind, useLoad } from "../core/live_data_hooks.js";
import { forgetNames, isAdmin } from "../core/signed_in_user.js";
import { Badge, Button, Card, Empty, Loaded, PageHead, Time } from "../ui/basic_components.js";
import { ask, confirmedByName, reveal } from "../ui/dialog.js";
import { ServiceSessions } from "./service_sessions.js";
import { withStepUp } from "../ui/step_up.js";

export function Keys() {
  const keys = useLoad((signal) => get("/keys", signal), [], ofKind("key_"));
  const add = isAdmin() ? html`<${Button} kind="main" icon="plus" act=${() => create(keys.reload)}>${t("New key")}<//>` : null;
  return html`<${PageHead} title=${t("API keys")} sub=${t("For programs. A key can do nothing without a grant on a device or its project.")} actions=${add} />
    <${Card}><${Loaded} of=${keys}>${(all) => all.length ? html`<ul class="lines">${all.map((key) => html`<${Key} key=${key.keyId} of=${key} reload=${keys.reload} />`)}</ul>` : html`<${Empty} icon="key-round" title=${t("No keys yet")} action=${add} />`}<//><//>
    ${isAdmin() ? html`<${ServiceSessions} />` : null}`;
}

function Key({ of: key, reload }) {
  const path = `/keys/${key.keyId}`;
  const [grants, setGrants] = useState(null);
  const show = async () => setGrants(grants ? null : await get(`${path}/grants`));
  const toggle = () => withStepUp(() => call("PATCH", path, { enabled: !key.enabled })).then(reload);
  const limit = () => setLimits(key, path).then((done) => done && reload());
  const renew = () => rotate(key, path).then((done) => done && reload());
  const gone = () => confirmedByName(t("Delete the key “{name}”?", { name: key.name }), t("Its grants and webhooks are deleted too, and programs that use it are refused at once."), key.name, t("Delete"), () => call("DELETE", path)).then((done) => done && (forgetNames(), reload()));
  return html`<li class="entry" aria-label=${key.name}>
    <div class="grow"><strong>${key.name}</strong> <code>${key.prefix}…</code> <${Badge} kind=${key.enabled ? "good" : "warn"}>${key.enabled ? t("enabled") : t("disabled")}<//> ${endBadge(key)}
      <small>${t("last used")} <${Time} at=${key.lastUsedAt} none=${t("never")} /> · ${t("made")} <${Time} at=${key.createdAt} />${key.expiresAt ? html` · ${isPast(key.expiresAt) ? t("ended") : t("ends")} <${Time} at=${key.expiresAt} />` : null}</small>
      ${key.allowedNetworks.length ? html`<small>${t("only from {networks}", { networks: key.allowedNetworks.join(", ") })}</small>` : null}
      ${key.previousExpiresAt && !isPast(key.previousExpiresAt) ? html`<small>${t("the old key {prefix}… ends", { prefix: key.previousPrefix })} <${Time} at=${key.previousExpiresAt} />${key.lastUsedPrefix === key.previousPrefix ? html` · ${t("it was used last")}` : null}</small>` : null}</div>
    <div class="actions"><${Button} small act=${show} aria-expanded=${String(grants !== null)}>${t("Grants")}<//>
      ${isAdmin() ? html`<${Button} small act=${limit}>${t("Limits")}<//><${Button} small act=${renew}>${t("Replace")}<//><${Button} small act=${toggle}>${key.enabled ? t("Disable") : t("Enable")}<//><${Button} small kind="quiet danger" icon="trash" label=${t("Delete {name}", { name: key.name })} act=${gone} />` : null}</div>
    ${grants ? html`<ul class="lines inner">${grants.length ? grants.map((grant) => html`<li key=${grant.grantId}><span class="grow">${grant.device ? html`<a href=${`#/device/${grant.device.deviceId}/access`}>${grant.device.name}</a>` : t("all devices of {project}", { project: grant.project.name })}: ${grant.commands.includes("*") ? t("all commands") : grant.commands.join(", ")}</span><small>${[grant.rateLimitPerMinute ? n("{count} call per minute", "{count} calls per minute", grant.rateLimitPerMinute) : null].filter(Boolean)} ${grant.expiresAt ? html`${t("until")} <${Time} at=${grant.expiresAt} />` : null}</small></li>`) : html`<li class="dim">${t("No grants. Give it one on the page of a device, under Access.")}</li>`}</ul>` : null}
  </li>`;
}

const SOON_MS = 14 * 86_400_000;
const isPast = (moment) => Date.parse(moment) <= Date.now();

function endBadge({ expiresAt }) {
  if (!expiresAt || Date.parse(expiresAt) - Date.now() >= SOON_MS) return null;
  return html`<${Badge} kind="warn">${isPast(expiresAt) ? t("ended") : t("ends soon")}<//>`;
}

const limitFields = ({ expiresAt, allowedNetworks = [] } = {}) => [
  { name: "expiresAt", label: t("Ends on"), type: "datetime-local", value: expiresAt ? localInput(expiresAt) : "", hint: t("Empty: it has no end.") },
  { name: "allowedNetworks", label: t("Only from these networks"), value: allowedNetworks.join(", "), placeholder: "192.168.1.0/24", hint: t("Empty: from everywhere.") },
];

/* The service takes an instant with its zone, and a list. */
const limitsOf = ({ expiresAt, allowedNetworks = "" }) => ({ expiresAt: expiresAt ? new Date(expiresAt).toISOString() : null, allowedNetworks: allowedNetworks.split(/[\s,]+/).filter(Boolean) });

/* A field that was not touched keeps its value to the second. */
function changedLimits(values, key) {
  const { expiresAt, allowedNetworks } = limitsOf(values);
  const isSame = (values.expiresAt ?? "") === (key.expiresAt ? localInput(key.expiresAt) : "");
  return isSame ? { allowedNetworks } : { expiresAt, allowedNetworks };
}

async function create(reload) {
  const made = await ask({ title: t("New API key"), fields: [{ name: "name", label: t("Name"), required: true, hint: t("For example the program that uses it") }, ...limitFields()], action: t("Create"), send: ({ name, ...limits }) => withStepUp(() => call("POST", "/keys", { name, ...limitsOf(limits) })) });
  if (!made) return;
  forgetNames();
  await reveal(t("The new key"), t("It is shown only now; the service stores only a hash."), [[t("Key"), made.key]]);
  await reload();
}

const setLimits = (key, path) => ask({ title: t("Limits of “{name}”", { name: key.name }), fields: limitFields(key), action: t("Save"), send: (values) => withStepUp(() => call("PATCH", path, changedLimits(values, key))) });

async function rotate(key, path) {
  const overlaps = [["0", t("not at all: it ends at once")], ["3600", n("{count} hour", "{count} hours", 1)], ["86400", n("{count} day", "{count} days", 1)], ["604800", n("{count} day", "{count} days", 7)]];
  const made = await ask({
    title: t("Replace the key “{name}”?", { name: key.name }),
    intro: t("It gets a new secret; its grants and webhooks stay. A secret that was replaced before ends at once."),
    fields: [{ name: "overlapSeconds", label: t("The old one works on for"), value: "86400", options: overlaps }],
    action: t("Replace"),
    send: ({ overlapSeconds }) => withStepUp(() => call("POST", `${path}/rotate`, { overlapSeconds: Number(overlapSeconds) })),
  });
  if (!made) return false;
  await reveal(t("The new key"), t("It is shown only now; the service stores only a hash."), [[t("Key"), made.key]]);
  return true;
}
