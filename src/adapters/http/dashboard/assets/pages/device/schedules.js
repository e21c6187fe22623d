/* The five slots of a device: when each switches next, in clock times of its zone, and what became of those before. */

import { call, get } from "../../core/api.js";
import { orderText } from "../../core/channels.js";
import { near, plainParams } from "../../core/format.js";
import { html } from "../../core/html.js";
import { t, word } from "../../core/i18n.js";
import { ofDevice, useLoad } from "../../core/live_data_hooks.js";
import { useRows } from "../../core/live_rows.js";
import { mayEdit } from "../../core/signed_in_user.js";
import { Badge, Button, Card, Empty, Loaded, More, Time } from "../../ui/basic_components.js";
import { confirmed } from "../../ui/dialog.js";
import { Icon } from "../../ui/icons.js";
import { editSlot } from "../../ui/slot_form.js";
import { repeatText, timesText } from "../../ui/slot_texts.js";

const SLOTS = [0, 1, 2, 3, 4];
const OUTCOMES = { FIRED: "good", RAN_ON_DEVICE: "good", FIRED_LATE: "warn", LEFT_TO_DEVICE: "wait" };

export function Schedules({ device, path }) {
  const slots = useLoad((signal) => get(`${path}/schedules`, signal), [path], ofDevice(device.deviceId, "schedule_", "relay_changed"));
  return html`
    <${Loaded} of=${slots}>${(all) => html`<${Card} title=${t("Slots")} actions=${html`<a href="#/calendar">${t("Calendar")}</a>`}>
      <ul class="slots">${SLOTS.map((number) => html`<${Slot} key=${number} number=${number} slot=${all.find(({ slot }) => slot === number)} channels=${device.channels} path=${path} reload=${slots.reload} />`)}</ul>
    <//>`}<//>
    <${Past} device=${device} path=${path} />`;
}

function Slot({ number, slot, channels, path, reload }) {
  const edit = () => editSlot(number, slot, path).then((done) => done && reload());
  if (!slot) return html`<li class="slot free"><span class="slot-number">${number}</span><span class="grow dim">${t("free")}</span>${mayEdit() ? html`<${Button} icon="plus" act=${edit} aria-label=${t("Plan slot {number}", { number })}>${t("Plan")}<//>` : null}</li>`;
  const cancel = () => confirmed(t("Cancel slot {number}?", { number }), t("It switches nothing any more, not even off. It stays in the history."), t("Cancel the slot"), () => call("DELETE", `${path}/schedules/${number}`)).then((done) => done && reload());
  const pause = () => call("PUT", `${path}/schedules/${number}`, { enabled: !slot.enabled }).then(reload);
  const next = slot.nextEdge === "off" ? slot.offCommand : slot.onCommand;
  return html`<li class="slot" aria-label=${slot.label || t("Slot {number}", { number })}>
    <span class="slot-number">${number}</span>
    <div class="grow">
      <strong>${slot.label || timesText(slot, channels)}</strong>
      <p>${slot.label ? `${timesText(slot, channels)} · ` : ""}${repeatText(slot)}</p>
      <p class="line"><${Badge} kind=${slot.enabled ? (slot.status === "ACTIVE" ? "on" : "good") : "off"} icon=${slot.enabled ? null : "pause"}>${slot.enabled ? word(`SLOT_${slot.status}`) : t("paused")}<//>
        ${slot.enabled && slot.nextFireAt ? html`<span class="line"><${Icon} name="calendar-clock" size=${16} />${t("Next: {command} {when}", { command: [orderText(next, channels), plainParams(next.params)].filter(Boolean).join(" "), when: near(slot.nextFireAt) })}</span>` : null}
        <${Outcome} slot=${slot} />
        ${slot.firmwareSynced ? html`<${Badge} kind="good" icon="cpu">${t("held by the device")}<//>` : html`<span class="dim">${t("switched by the service")}</span>`}</p>
    </div>
    ${mayEdit() ? html`<div class="actions"><${Button} small icon=${slot.enabled ? "pause" : "play"} act=${pause}>${slot.enabled ? t("Pause") : t("Resume")}<//><${Button} small icon="pencil" act=${edit}>${t("Edit")}<//><${Button} small kind="quiet danger" icon="trash" label=${t("Cancel the slot")} act=${cancel} /></div>` : null}
  </li>`;
}

function Outcome({ slot: { lastOutcome, lastFiredAt } }) {
  return lastOutcome ? html`<${Badge} kind=${OUTCOMES[lastOutcome] ?? "bad"}>${t("last: {outcome}", { outcome: word(lastOutcome) })}${lastFiredAt ? html`, <${Time} at=${lastFiredAt} />` : null}<//>` : null;
}

function Past({ device, path }) {
  const rows = useRows(`${path}/schedules/history?limit=10`, "scheduleId");
  const page = useLoad((signal) => rows.load(signal), [path], ofDevice(device.deviceId, "schedule_"));
  return html`<${Card} title=${t("Past slots")}>
    <${Loaded} of=${page}>${(shown) => shown.data.length ? html`<ul class="lines">${shown.data.map((slot) => html`<li key=${slot.scheduleId} class="execution"><${Badge} kind="off">${word(slot.status)}<//><div class="grow"><strong>${slot.label || timesText(slot, device.channels)}</strong><small>${t("Slot {number}", { number: slot.slot })} · ${repeatText(slot)}</small></div><${Outcome} slot=${slot} /></li>`)}</ul>
      <${More} next=${shown.next} load=${() => rows.more(shown, page.reload)} />` : html`<${Empty} icon="calendar-days" title=${t("No slot has ended yet")} />`}<//>
  <//>`;
}
