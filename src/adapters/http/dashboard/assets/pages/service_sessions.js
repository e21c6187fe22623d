/* Service sessions: credentials with which programs manage the account. Only Owners and Admins see them. */

import { call, get } from "../core/api.js";
import { html } from "../core/html.js";
import { n, t, word } from "../core/i18n.js";
import { ofKind, useLoad } from "../core/live_data_hooks.js";
import { Badge, Button, Card, Empty, Loaded, Time } from "../ui/basic_components.js";
import { ask, confirmed, reveal } from "../ui/dialog.js";
import { withStepUp } from "../ui/step_up.js";

const DAYS = [1, 7, 30, 90, 365];
const DAY_MS = 86_400_000;
const SOON_MS = 14 * DAY_MS;
const FLEET_FILE = ["projects", "device-types", "devices", "commands", "schedules", "rules", "groups", "api-keys", "grants", "webhooks"];
const FIELD_OF = { operations: "changes" };

const resources = () => [["devices", t("Devices")], ["commands", t("Commands")], ["schedules", t("Schedules")], ["rules", t("Rules")], ["telemetry", t("Telemetry")], ["groups", t("Groups")], ["projects", t("Projects")], ["device-types", t("Device types")], ["provisioning", t("Provisioning")], ["grants", t("Grants")], ["api-keys", t("API keys")], ["webhooks", t("Webhooks")], ["events", t("Log and live feed")], ["catalog", t("Catalog")], ["network", t("Network")]];
const readable = () => [...resources(), ["approvals", t("Approvals")]];

export function ServiceSessions() {
  const sessions = useLoad((signal) => get("/service-sessions", signal), [], ofKind("service_session_", "session_revoked", "member_"));
  const members = useLoad((signal) => get("/members", signal), [], ofKind("member_"));
  const add = html`<${Button} icon="plus" act=${() => create(sessions.reload)}>${t("New service session")}<//>`;
  const nameOf = (membershipId) => members.data?.find((member) => member.membershipId === membershipId)?.name;
  return html`<${Card} title=${t("Service sessions")} actions=${add}>
    <p class="dim">${t("For programs that manage the account, such as a pipeline that keeps the fleet in a file. One acts as you, for named operations, until it expires. It never decides approvals.")}</p>
    <${Loaded} of=${sessions}>${(all) => all.length ? html`<ul class="lines" aria-label=${t("Service sessions")}>${all.map((session) => html`<${ServiceSession} key=${session.sessionId} of=${session} maker=${nameOf(session.membershipId)} reload=${sessions.reload} />`)}</ul>` : html`<${Empty} icon="key-round" title=${t("No service sessions")} />`}<//>
  <//>`;
}

function ServiceSession({ of: { sessionId, name, prefix, role, operations, expiresAt, lastUsedAt }, maker, reload }) {
  const revoke = () => confirmed(t("Revoke the service session “{name}”?", { name }), t("Programs that use it are refused at once. What it made stays; what it asked for and nobody approved yet expires."), t("Revoke"), () => call("DELETE", `/service-sessions/${sessionId}`)).then((done) => done && reload());
  const isEnding = new Date(expiresAt) - Date.now() < SOON_MS;
  return html`<li class="entry" aria-label=${name}><div class="grow"><strong>${name}</strong> <code>${prefix}…</code> <${Badge} kind="info" icon="circle-user">${word(role)}<//> ${isEnding ? html`<${Badge} kind="warn">${t("ends soon")}<//>` : null}
      <small>${t("last used")} <${Time} at=${lastUsedAt} none=${t("never")} /> · ${t("expires")} <${Time} at=${expiresAt} />${maker ? html` · ${t("made by {name}", { name: maker })}` : null}</small>
      <small>${summary(operations)}</small></div>
    <${Button} small kind="quiet danger" icon="trash" label=${t("Revoke {name}", { name })} act=${revoke} /></li>`;
}

function summary(operations) {
  const list = (what) => readable().filter(([resource]) => operations.includes(`${resource}:${what}`)).map(([, label]) => label).join(", ");
  const [changes, reads] = [list("write"), list("read")];
  return [changes && t("changes {what}", { what: changes }), reads && t("reads {what}", { what: reads })].filter(Boolean).join(" · ");
}

async function create(reload) {
  const isOwn = ({ purpose }) => purpose === "own";
  const made = await ask({
    title: t("New service session"),
    fields: [
      { name: "name", label: t("Name"), required: true, hint: t("For example the program that uses it") },
      { name: "purpose", label: t("What it is for"), options: [["fleet", t("The fleet as a file")], ["read", t("Read everything")], ["own", t("Something else: choose")]] },
      { name: "changes", label: t("It may read and change"), type: "many", options: resources(), when: isOwn },
      { name: "reads", label: t("It may only read"), type: "many", options: readable(), when: isOwn },
      { name: "role", label: t("Role"), value: "Admin", options: ["Admin", "Member", "Viewer"].map((role) => [role, word(role)]), hint: t("It needs the role that a person would need for the same.") },
      { name: "days", label: t("Valid for"), value: "90", options: DAYS.map((days) => [String(days), n("{count} day", "{count} days", days)]) },
    ],
    action: t("Create"),
    send: (values) => withStepUp(() => call("POST", "/service-sessions", bodyOf(values))).catch(atOwnField),
  });
  if (!made) return;
  await reveal(t("The new service session"), t("It is shown only now; the service stores only a hash."), [[t("Token"), made.token], [t("For the command line"), `export LATCHBOARD_URL=${location.origin}\nexport LATCHBOARD_TOKEN=${made.token}`]]);
  await reload();
}

function bodyOf({ name, purpose, changes = [], reads = [], role, days }) {
  const wanted = { fleet: [FLEET_FILE, []], read: [[], readable().map(([resource]) => resource)], own: [changes, reads] }[purpose];
  const [writes, only] = wanted;
  const operations = [...writes.map((each) => `${each}:write`), ...only.filter((each) => !writes.includes(each)).map((each) => `${each}:read`)];
  if (!operations.length) throw Object.assign(new Error(t("Choose at least one thing that it may do.")), { details: [] });
  return { name, role, operations, expiresAt: new Date(Date.now() + Number(days) * DAY_MS).toISOString() };
}

/* The service names the fields of its own document. */
function atOwnField(error) {
  error.details = (error.details ?? []).map((detail) => ({ ...detail, field: FIELD_OF[detail.field.split(".")[0]] ?? detail.field }));
  throw error;
}
