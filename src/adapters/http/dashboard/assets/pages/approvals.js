/* What waits for a decision, with the whole request, and what was decided. */

import { call, get, getPage } from "../core/api.js";
import { ChannelState, hasChannels, labelOf } from "../core/channels.js";
import { near, plainParams } from "../core/format.js";
import { html } from "../core/html.js";
import { t, word } from "../core/i18n.js";
import { countWaiting, liveDevice, ofKind, useLoad } from "../core/live_data_hooks.js";
import { useRows } from "../core/live_rows.js";
import { isAdmin, loadNames, me } from "../core/signed_in_user.js";
import { Badge, Button, Card, Empty, Facts, Loaded, More, PageHead, Time } from "../ui/basic_components.js";
import { ask } from "../ui/dialog.js";
import { Icon } from "../ui/icons.js";
import { tell } from "../ui/toasts.js";
import { withStepUp } from "../ui/step_up.js";
import { DeviceIcon, Presence, RelayState } from "../ui/device_switch.js";

const PAGE = 25;
export const KINDS = { APPROVED: "good", DENIED: "bad", WITHDRAWN: "off", EXPIRED: "off", PENDING: "wait" };

export function Approvals() {
  const open = useLoad((signal) => pages("/approvals?status=PENDING&limit=100", signal), [], ofKind("approval_"));
  return html`
    <${PageHead} title=${t("Approvals")} />
    <${Loaded} of=${open}>${(waiting) => waiting.length ? html`<ul class="inbox" aria-label=${t("Waiting")}>${waiting.map((each) => html`<${Request} key=${each.approvalId} approval=${each} reload=${open.reload} />`)}</ul>` : html`<${Card}><${Empty} icon="shield-check" title=${t("Nothing waits for approval")}>${t("A command that needs approval appears here as soon as somebody sends it.")}<//><//>`}<//>
    <${Decided} />`;
}

/* All pages of what waits: nobody may overlook a request because it is the hundred-and-first. */
async function pages(path, signal) {
  const found = [];
  for (let next = path; next; ) {
    const page = await getPage(next, signal);
    found.push(...page.data);
    ({ next } = page);
  }
  return found;
}

/* The button that was pressed has gone with its request. The focus goes to the head of the page, not to the next request: a second press must
   decide nothing that was not read. */
function focusPage() {
  if (document.activeElement === document.body) document.querySelector("main h1")?.focus({ preventScroll: true });
}

const useDevice = (deviceId) => {
  const loaded = useLoad((signal) => get(`/devices/${deviceId}`, signal).catch((error) => (error.status === 404 ? null : Promise.reject(error))), [deviceId]);
  return loaded.data ? liveDevice(loaded.data) : loaded.data;
};

function Request({ approval, reload }) {
  const { deviceId, approvalId, cmd, channel: number, params, requestedBy, reason, createdAt, expiresAt } = approval;
  const device = useDevice(deviceId);
  const onChannel = labelOf(device?.channels ?? [], number);
  const channel = device && hasChannels(device) ? device.channels.find((each) => each.channel === number) : null;
  const path = `/devices/${deviceId}/approvals/${approvalId}`;
  const decided = async (said) => {
    tell(said);
    await Promise.all([reload(), countWaiting()]);
    requestAnimationFrame(focusPage);
  };
  const approve = () => withStepUp(() => call("POST", `${path}/approve`)).then(() => decided(t("{command} was approved and sent.", { command: cmd })));
  const deny = async () => {
    const fields = "note" in approval ? [{ name: "note", label: t("Why (optional)"), hint: t("Shown to the person who asked"), maxlength: 280 }] : [];
    const done = await ask({ title: t("Deny {command}?", { command: cmd }), intro: t("It is not sent."), fields, action: t("Deny"), danger: true, send: ({ note } = {}) => call("POST", `${path}/deny`, note ? { note } : undefined) });
    if (done) await decided(t("{command} was denied.", { command: cmd }));
  };
  const withdraw = async () => {
    const done = await ask({ title: t("Withdraw {command}?", { command: cmd }), intro: t("It is not sent."), action: t("Withdraw"), danger: true, send: () => call("POST", `${path}/withdraw`) });
    if (done) await decided(t("{command} was withdrawn.", { command: cmd }));
  };
  const isMine = requestedBy.id === me.value?.userId;
  return html`<li class="card request" aria-label=${[cmd, onChannel, device?.name ?? deviceId].filter(Boolean).join(" · ")}>
    <header class="request-head">${device ? html`<${DeviceIcon} device=${device} />` : html`<span class="device-icon"><${Icon} name="cpu" /></span>`}
      <div class="grow"><h2>${[cmd, onChannel].filter(Boolean).join(" · ")}</h2>
        <small><a href=${`#/device/${deviceId}`}>${device?.name ?? deviceId}</a>${device?.location ? ` · ${device.location}` : ""}</small></div>
      ${device ? html`<div class="device-state"><${Presence} device=${device} />${channel ? html`<${ChannelState} channel=${channel} isOnline=${device.isOnline} />` : html`<${RelayState} device=${device} />`}</div>` : null}
    </header>
    <${Facts} of=${[...paramFacts(params), [t("Asked by"), requestedBy.name], [t("Reason"), reason, true], [t("Asked"), html`<${Time} at=${createdAt} />`], [t("Expires"), near(expiresAt)]]} />
    ${isAdmin() ? html`<div class="request-foot"><${Button} kind="danger" icon="x" act=${deny}>${t("Deny")}<//><${Button} kind="main" icon="check" act=${approve}>${t("Approve")}<//></div>` : html`<p class="dim">${t("An Owner or Admin decides.")}</p>${isMine ? html`<div class="request-foot"><${Button} icon="x" act=${withdraw}>${t("Withdraw")}<//></div>` : null}`}
  </li>`;
}

export const paramFacts = (params) => (params !== null && typeof params === "object" && !Array.isArray(params) ? Object.entries(params).map(([name, value]) => [name, plainParams({ "": value }).trim()]) : params === null || params === undefined ? [] : [[t("Parameters"), plainParams(params)]]);

function Decided() {
  const rows = useRows(`/approvals?limit=${PAGE}`, "approvalId");
  const page = useLoad((signal) => Promise.all([rows.load(signal), loadNames()]), [], ofKind("approval_"));
  return html`<${Card} title=${t("Decided")}>
    <${Loaded} of=${page}>${([shown, named]) => {
      const over = shown.data.filter(({ status }) => status !== "PENDING");
      return over.length || shown.next ? html`<ul class="lines">${over.map((each) => html`<${Outcome} key=${each.approvalId} approval=${each} named=${named} />`)}</ul>
        <${More} next=${shown.next} load=${() => rows.more(shown, page.reload)} />` : html`<${Empty} icon="inbox" title=${t("Nothing was decided yet")} />`;
    }}<//>
  <//>`;
}

function Outcome({ approval: { deviceId, cmd, channel, params, status, requestedBy, reason, decidedBy, decidedAt, createdAt, note }, named }) {
  const device = useDevice(deviceId);
  return html`<li class="execution">
    <${Badge} kind=${KINDS[status]}>${word(status)}<//>
    <div class="grow"><strong>${[cmd, labelOf(device?.channels ?? [], channel)].filter(Boolean).join(" · ")}</strong> ${plainParams(params)} <a href=${`#/device/${deviceId}`}>${device?.name ?? ""}</a>
      <small>${[t("asked by {who}", { who: requestedBy.name }), decidedBy ? t("decided by {who}", { who: named(decidedBy) }) : null, reason, note].filter(Boolean).join(" · ")}</small></div>
    <small><${Time} at=${decidedAt ?? createdAt} /></small>
  </li>`;
}
