/* Provisioning codes, and the devices that wait for approval: each piece of hardware trades the code for credentials of its own. */

import { call, get } from "../../core/api.js";
import { near } from "../../core/format.js";
import { html } from "../../core/html.js";
import { n, t, word } from "../../core/i18n.js";
import { ofKind, useLoad } from "../../core/live_data_hooks.js";
import { useRows } from "../../core/live_rows.js";
import { isAdmin } from "../../core/signed_in_user.js";
import { Badge, Button, Card, Empty, Loaded, More, Time } from "../../ui/basic_components.js";
import { ask, confirmed, reveal } from "../../ui/dialog.js";
import { withStepUp } from "../../ui/step_up.js";

const PAGE = 50;
const KINDS = { PENDING: "wait", APPROVED: "info", DENIED: "bad", CLAIMED: "good" };
const CHANGES = ofKind("device_claim", "provisioning_code_");
const DAYS = [1, 7, 30, 90, 365];
const DAY_MS = 86_400_000;

export function ProvisioningCodes() {
  const codes = useLoad((signal) => get("/provisioning-codes", signal), [], CHANGES);
  const add = isAdmin() ? html`<${Button} kind="main" icon="plus" act=${() => create(codes.reload)}>${t("New code")}<//>` : null;
  return html`<${Claims} status="PENDING" title=${t("Waiting for approval")} codes=${codes.data ?? []} />
    <${Card} title=${t("Provisioning codes")} actions=${codes.data?.length ? add : null}>
      <p class="dim">${t("Put one code into the firmware of many devices. Each trades it for credentials of its own at its first start, once for each piece of hardware.")}</p>
      <${Loaded} of=${codes}>${(all) => all.length ? html`<ul class="lines">${all.map((code) => html`<${Code} key=${code.codeId} code=${code} reload=${codes.reload} />`)}</ul>` : html`<${Empty} icon="key-round" title=${t("No codes yet")} action=${add} />`}<//>
    <//>
    <${Claims} status="" title=${t("Decided claims")} codes=${codes.data ?? []} />`;
}

function Code({ code: { codeId, name, prefix, maxDevices, hardwareIds, claimedCount, requiresApproval, expiresAt }, reload }) {
  const over = new Date(expiresAt) < new Date();
  const revoke = () => confirmed(t("Revoke the code “{name}”?", { name }), t("Devices that still have to use it are refused, and what waits for approval is removed. Devices that have their credentials keep them."), t("Revoke"), () => call("DELETE", `/provisioning-codes/${codeId}`)).then((done) => done && reload());
  return html`<li class="entry" aria-label=${name}><div class="grow"><strong>${name}</strong> <code>${prefix}…</code> ${over ? html`<${Badge} kind="warn">${t("expired")}<//>` : null}
      <small>${t("{count} of {total} devices", { count: claimedCount, total: maxDevices })} · ${requiresApproval ? t("with approval") : t("without approval")}${hardwareIds.length ? html` · <span title=${hardwareIds.join(" ")}>${t("listed hardware ids only")}</span>` : null} · ${over ? html`<${Time} at=${expiresAt} />` : t("until {when}", { when: near(expiresAt) })}</small></div>
    ${isAdmin() ? html`<${Button} small kind="quiet danger" icon="trash" label=${t("Revoke {name}", { name })} act=${revoke} />` : null}</li>`;
}

function Claims({ status, title, codes }) {
  const path = `/provisioning-claims?limit=${PAGE}${status ? `&status=${status}` : ""}`;
  const rows = useRows(path, "claimId");
  const page = useLoad((signal) => rows.load(signal), [path], CHANGES);
  const binds = status ? html`<p class="dim">${t("A decision is for the one board that asked, from the address that it shows, and counts once. Another board with the same hardware id gets nothing by it.")}</p>` : null;
  return html`<${Card} title=${title}>${binds}<${Loaded} of=${page}>${(shown) => {
    const all = shown.data.filter((claim) => status || claim.status !== "PENDING");
    return all.length || shown.next ? html`<ul class="lines" aria-label=${title}>${all.map((claim) => html`<${Claim} key=${claim.claimId} claim=${claim} code=${codes.find(({ codeId }) => codeId === claim.codeId)} reload=${page.reload} />`)}</ul><${More} next=${shown.next} load=${() => rows.more(shown, page.reload)} />` : html`<p class="dim">${status ? t("No device waits.") : t("No device has used a code yet.")}</p>`;
  }}<//><//>`;
}

function Claim({ claim: { claimId, hardwareId, name, address, status, deviceId, createdAt }, code, reload }) {
  const decide = (what) => () => call("POST", `/provisioning-claims/${claimId}/${what}`).then(reload);
  const forget = () => confirmed(t("Forget the claim of {id}?", { id: hardwareId }), t("The next board that asks with this hardware id makes a new claim. Do it if a board was denied by mistake, if it has lost what it was given, or if somebody else used its hardware id."), t("Forget"), () => call("DELETE", `/provisioning-claims/${claimId}`)).then((done) => done && reload());
  const actions = status === "PENDING" ? html`<${Button} small kind="danger" icon="x" act=${decide("deny")}>${t("Deny")}<//><${Button} small kind="main" icon="check" act=${decide("approve")}>${t("Approve")}<//>` : deviceId ? null : html`<${Button} small kind="quiet danger" icon="trash" label=${t("Forget the claim of {id}", { id: hardwareId })} act=${forget} />`;
  return html`<li class="entry" aria-label=${hardwareId}><div class="grow"><strong>${deviceId ? html`<a href=${`#/device/${deviceId}`}>${hardwareId}</a>` : hardwareId}</strong> <${Badge} kind=${KINDS[status]}>${word(`CLAIM_${status}`)}<//>
      <small>${[name, code?.name, t("from {address}", { address })].filter(Boolean).join(" · ")} · <${Time} at=${createdAt} /></small></div>
    ${actions && isAdmin() ? html`<div class="actions">${actions}</div>` : null}</li>`;
}

async function create(reload) {
  const [projects, types, boards, apps] = await Promise.all(["/projects", "/device-types", "/catalog/boards", "/catalog/apps"].map((path) => get(path)));
  const made = await ask({
    title: t("New provisioning code"),
    fields: [
      { name: "name", label: t("Name"), required: true, hint: t("For example the place or the batch; devices without a name of their own get it with their hardware id.") },
      { name: "boardType", label: t("Board"), options: boards.map(({ boardType, name }) => [boardType, t(name)]) },
      { name: "appType", label: t("What it switches"), value: "RELAY", options: apps.map(({ appType, name }) => [appType, t(name)]) },
      { name: "projectId", label: t("Project"), options: projects.map(({ projectId, name }) => [projectId, name]) },
      ...(types.length ? [{ name: "deviceTypeId", label: t("Device type"), options: [["", t("none")], ...types.map(({ deviceTypeId, name }) => [deviceTypeId, name])] }] : []),
      { name: "maxDevices", label: t("For how many devices"), type: "integer", value: 10, min: 1, max: 10_000, required: true },
      { name: "days", label: t("Valid for"), value: "7", options: DAYS.map((days) => [String(days), n("{count} day", "{count} days", days)]) },
      { name: "hardwareIds", label: t("Only these hardware ids"), type: "textarea", hint: t("For example MAC addresses, one a line. Empty: whoever has the code may ask.") },
      { name: "requiresApproval", label: t("Each device waits for approval"), type: "checkbox", value: true },
    ],
    action: t("Create"),
    send: ({ days, hardwareIds = "", ...values }) => withStepUp(() => call("POST", "/provisioning-codes", { ...values, hardwareIds: hardwareIds.split(/[\s,;]+/).filter(Boolean), expiresAt: new Date(Date.now() + Number(days) * DAY_MS - 60_000).toISOString() })),
  });
  if (!made) return;
  await reveal(t("The code “{name}”", { name: made.name }), t("Put it into the firmware. It is shown only now. Whoever has it can ask for credentials, so revoke it when all devices have come."), [[t("Code"), made.code], [t("First start of a device"), example(made.code)]]);
  await reload();
}

const example = (code) => `curl -X POST ${location.origin}/api/v1/provisioning/claim \\\n  -H "Content-Type: application/json" \\\n  -d '{"code": "${code}", "hardwareId": "AA:BB:CC:DD:EE:FF", "claimToken": "${randomToken()}"}'`;

const randomToken = () => Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) => byte.toString(16).padStart(2, "0")).join("");
