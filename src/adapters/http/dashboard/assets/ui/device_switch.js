/*
 * The switch of a device or channel. It has two halves, each a command of its own, so that stale data never reverses an action; the half that the device
 * reported is marked. Below it: the life of the command that was sent.
 */

import { isLit } from "../core/channels.js";
import { FINAL, lifeText, useCommand } from "../core/send_command.js";
import { now, number } from "../core/format.js";
import { html } from "../core/html.js";
import { t } from "../core/i18n.js";
import { Icon } from "./icons.js";

/* `command`: what useCommand returned. `name`, `isOn`: of the channel that it switches. */
export function Switch({ device, command: [life, send], large = false, name = device.name, isOn = device.relayState }) {
  const takes = device.deviceStatus === "ACTIVE";
  const waiting = life && life.kind === "wait" ? life.cmd : null;
  const half = (cmd, state, text) => html`<button type="button" class=${`half ${cmd.toLowerCase()}`} aria-pressed=${String(isOn === state)} aria-busy=${waiting === cmd ? "true" : null} disabled=${!takes} aria-label=${t("{command}: {name}", { command: text, name })} onClick=${() => send({ cmd })}>
    <${Icon} name=${waiting === cmd ? "loader-circle" : cmd === "ON" ? "power" : "circle"} size=${large ? 22 : 16} spin=${waiting === cmd} /><span>${text}</span>
  </button>`;
  return html`<div class=${`switch ${large ? "large" : ""} ${device.isOnline ? "" : "stale"}`} role="group" aria-label=${t("Switch {name}", { name })}>${half("OFF", false, t("Off"))}${half("ON", true, t("On"))}</div>`;
}

const ICONS = { good: "circle-check", bad: "circle-x", warn: "hourglass", wait: "loader-circle" };

export function Life({ device, life }) {
  if (!life) return html`<output class="life" aria-live="polite"></output>`;
  const left = life.until ? Math.max(0, Math.ceil((life.until - (FINAL.has(life.status) ? 0 : now.value)) / 1000)) : 0;
  const text = life.text ?? (life.status === "SENDING" ? t("Sending") : lifeText(life.status, device.isOnline, left));
  const took = life.tookMs !== null && life.tookMs !== undefined && life.kind === "good" ? ` · ${number(life.tookMs / 1000, 2)} s` : "";
  return html`<output class=${`life ${life.kind}`} aria-live="polite"><${Icon} name=${ICONS[life.kind]} size=${16} spin=${life.kind === "wait"} /><span>${text}${life.reason ? `: ${life.reason}` : ""}${took}</span></output>`;
}

export function Presence({ device }) {
  const { isOnline } = device;
  return html`<span class=${`presence ${isOnline ? "good" : "bad"}`}><${Icon} name=${isOnline ? "wifi" : "wifi-off"} size=${16} /><span>${isOnline ? t("online") : t("offline")}</span></span>`;
}

export function RelayState({ device }) {
  const { relayState, isOnline } = device;
  const known = relayState !== null && relayState !== undefined;
  const state = known ? (relayState ? t("On") : t("Off")) : t("unknown");
  return html`<span class=${`relay ${relayState ? "on" : "off"}`}>${known && !isOnline ? t("{state}, last known", { state }) : state}</span>`;
}

const APP_ICONS = { LIGHT: "lightbulb", SOCKET: "plug", PUMP: "droplets", IRRIGATION: "sprout", HVAC: "flame", FAN: "fan", MOTOR: "settings", GATE: "door-open", ALARM: "bell", SENSOR: "thermometer", RELAY: "toggle-left" };

export const DeviceIcon = ({ device, size = 22 }) => html`<span class=${`device-icon ${isLit(device) ? "on" : ""} ${device.isOnline ? "" : "stale"}`}><${Icon} name=${APP_ICONS[device.appType] ?? "cpu"} size=${size} /></span>`;

export { useCommand };
