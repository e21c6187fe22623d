/* Grants of a device, and explanations of access decisions. */

import { call, get } from "../api.js";
import { badge, button, fill, h, row, section, table, time } from "../dom.js";
import { ask, confirmed } from "../dialog.js";

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

export async function access(room, { path, signal, again }) {
  const grants = await get(`${path}/grants`, signal);
  const rows = grants.map((grant) => line(grant, path, again));
  const answer = h("output", { class: "said" });
  fill(
    room,
    section(
      "Grants",
      [button("Explain access", () => explain(path, answer)), button("New grant", () => create(path, again), { kind: "main" })],
      table(["Who", "May", "When", "Rate limit", "Expires", "Covers", ""], rows, "Only Owners and Admins may switch this device."),
      answer,
    ),
  );
}

function line(grant, path, again) {
  const take = () => confirmed("Delete this grant?", "It stops applying at once.", "Delete", () => call("DELETE", `${path}/grants/${grant.grantId}`)).then((gone) => gone && again());
  const over = grant.expiresAt !== null && Date.parse(grant.expiresAt) <= Date.now();
  return row(
    [grant.subject.name, h("small", null, grant.subject.type === "apikey" ? "API key" : "member")],
    [grant.commands.includes("*") ? "everything" : grant.commands.join(", "), h("small", null, grant.scope.toLowerCase())],
    hours(grant),
    grant.rateLimitPerMinute ? `${grant.rateLimitPerMinute} per minute` : "",
    over ? badge("expired", "bad") : time(grant.expiresAt, "–"),
    grant.appliesVia === "project" ? "its whole project" : "this device",
    button("Delete", take, { kind: "danger" }),
  );
}

const clock = (minute) => `${String(Math.floor(minute / 60)).padStart(2, "0")}:${String(minute % 60).padStart(2, "0")}`;

function hours({ activeDays, activeFromMinute, activeToMinute, timezone }) {
  const days = activeDays.length && activeDays.length < 7 ? activeDays.map((day) => DAYS[day].slice(0, 3)).join(" ") : "every day";
  const window = activeFromMinute === null ? "at any time" : `${clock(activeFromMinute)}–${clock(activeToMinute)}`;
  return [`${days}, ${window}`, h("small", null, timezone)];
}

async function subjects() {
  const [keys, members] = await Promise.all([get("/keys"), get("/members")]);
  const named = [...keys.map(({ keyId, name }) => [`apiKeyId:${keyId}`, `API key: ${name}`]), ...members.map(({ membershipId, name, role }) => [`membershipId:${membershipId}`, `${name} (${role})`])];
  return named;
}

async function create(path, again) {
  const [who, commands] = await Promise.all([subjects(), get(`${path}/commands`)]);
  const made = await ask({
    title: "New grant",
    fields: [
      { name: "who", label: "Who", options: who },
      { name: "commands", label: "May run", multiple: true, required: true, options: [["*", "everything"], ...commands.map(({ name, label }) => [name, label])] },
      { name: "appliesVia", label: "Covers", options: [["device", "this device"], ["project", "every device of its project"]] },
      { name: "scope", label: "Scope", options: [["READ", "read and query"], ["WRITE", "read and command"], ["FULL", "full"]], value: "WRITE" },
      { name: "activeDays", label: "Days (none: every day)", multiple: true, options: DAYS.map((day, index) => [String(index), day]) },
      { name: "from", label: "From", type: "time" },
      { name: "to", label: "To", type: "time", hint: "If it is earlier than the start, the window passes midnight." },
      { name: "timezone", label: "Time zone", value: Intl.DateTimeFormat().resolvedOptions().timeZone },
      { name: "rateLimitPerMinute", label: "Rate limit per minute", type: "number" },
      { name: "expires", label: "Expires", type: "datetime-local" },
    ],
    action: "Grant",
    send: ({ who: chosen, from, to, expires, activeDays, ...values }) => {
      const [kind, id] = chosen.split(":");
      return call("POST", `${path}/grants`, {
        ...values,
        [kind]: id,
        activeDays: activeDays.map(Number),
        ...(from ? { activeFromMinute: minute(from) } : {}),
        ...(to ? { activeToMinute: minute(to) } : {}),
        ...(expires ? { expiresAt: new Date(expires).toISOString() } : {}),
      });
    },
  });
  if (made) await again();
}

function minute(text) {
  const [hour, past] = text.split(":").map(Number);
  return hour * 60 + past;
}

async function explain(path, answer) {
  const [keys, commands] = await Promise.all([get("/keys"), get(`${path}/commands`)]);
  await ask({
    title: "Explain access",
    fields: [
      { name: "apiKeyId", label: "API key", options: keys.map(({ keyId, name }) => [keyId, name]), required: true },
      { name: "cmd", label: "Command", options: commands.map(({ name, label }) => [name, label]) },
    ],
    action: "Explain",
    send: async (values) => {
      const said = await get(`${path}/access?${new URLSearchParams(values)}`);
      const wait = said.waitsForApproval ? " It would wait for approval." : "";
      fill(answer, badge(said.allowed ? "allowed" : "denied", said.allowed ? "good" : "bad"), ` ${said.message}${wait}`, said.passesAt ? [" It is allowed: ", time(said.passesAt)] : null);
      return said;
    },
  });
}
