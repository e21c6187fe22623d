/* Grants: who may tell this device what, when, how often and until when. And why a call would pass or not. */

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
      [button("Why would a call pass?", () => explain(path, answer)), button("New grant", () => create(path, again), { kind: "main" })],
      table(["Who", "May", "When", "At most", "Until", "Covers", ""], rows, "Nobody but Owners and Admins may switch it."),
      answer,
    ),
  );
}

function line(grant, path, again) {
  const take = () => confirmed("Take this grant back?", "It holds no more from this moment on.", "Take it back", () => call("DELETE", `${path}/grants/${grant.grantId}`)).then((gone) => gone && again());
  const over = grant.expiresAt !== null && Date.parse(grant.expiresAt) <= Date.now();
  return row(
    [grant.subject.name, h("small", null, grant.subject.type === "apikey" ? "API key" : "member")],
    [grant.commands.includes("*") ? "everything" : grant.commands.join(", "), h("small", null, grant.scope.toLowerCase())],
    hours(grant),
    grant.rateLimitPerMinute ? `${grant.rateLimitPerMinute} a minute` : "",
    over ? badge("expired", "bad") : time(grant.expiresAt, "–"),
    grant.appliesVia === "project" ? "its whole project" : "this device",
    button("Take back", take, { kind: "danger" }),
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
      { name: "scope", label: "Scope", options: [["READ", "read and ask only"], ["WRITE", "read and command"], ["FULL", "full"]], value: "WRITE" },
      { name: "activeDays", label: "Only on (none: every day)", multiple: true, options: DAYS.map((day, index) => [String(index), day]) },
      { name: "from", label: "Only from", type: "time" },
      { name: "to", label: "to", type: "time", hint: "Past midnight when it is earlier." },
      { name: "timezone", label: "Time zone", value: Intl.DateTimeFormat().resolvedOptions().timeZone },
      { name: "rateLimitPerMinute", label: "At most, a minute", type: "number" },
      { name: "expires", label: "Until", type: "datetime-local" },
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
    title: "Why would a call pass?",
    fields: [
      { name: "apiKeyId", label: "API key", options: keys.map(({ keyId, name }) => [keyId, name]), required: true },
      { name: "cmd", label: "Command", options: commands.map(({ name, label }) => [name, label]) },
    ],
    action: "Explain",
    send: async (values) => {
      const said = await get(`${path}/access?${new URLSearchParams(values)}`);
      const wait = said.waitsForApproval ? " It would wait for an approval." : "";
      fill(answer, badge(said.allowed ? "allowed" : "refused", said.allowed ? "good" : "bad"), ` ${said.message}${wait}`, said.passesAt ? [" It passes: ", time(said.passesAt)] : null);
      return said;
    },
  });
}
