/*
 * The channels of a device, each as a row: its name, what it reported, and the control of its kind. Each row has the life of its own command below
 * it. A slider shows what was asked for until the command has ended, then what the channel says again.
 */

import { call } from "../core/api.js";
import { celsiusText, channelLabel, ChannelState, channelName, isOn, kelvinText, KIND_ICONS, MODE_OPTIONS, nameOf, percentText, positionText, stateText } from "../core/channels.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { errorText, t } from "../core/i18n.js";
import { mayEdit } from "../core/signed_in_user.js";
import { Button, Time } from "./basic_components.js";
import { Life, Switch, useCommand } from "./device_switch.js";
import { Icon } from "./icons.js";

const SETTLE_MS = 400; // a key that is held down, or a few taps, are one command
const WHITE = { min: 2000, max: 6500, step: 100 };
const TARGET = { min: -50, max: 100, step: 0.5 }; // what the service accepts: a freezer has a target too

const REASONS = () => ({ PENDING: t("It has no credentials yet, so nothing can be switched."), DISABLED: t("It is disabled: enable it to switch."), REVOKED: t("Its credentials are revoked: give it new ones to switch.") });

export function ChannelRows({ device, path, reload }) {
  const reason = device.deviceStatus === "ACTIVE" ? null : (REASONS()[device.deviceStatus] ?? t("It takes no commands now."));
  return html`${reason ? html`<p class="hint warn" id="channels-off"><${Icon} name="info" size=${18} />${reason}</p>` : null}
    <ul class="channels" aria-label=${t("Channels of {name}", { name: device.name })} aria-describedby=${reason ? "channels-off" : null}>
      ${device.channels.map((channel) => html`<${Row} key=${channel.channel} device=${device} channel=${channel} path=${path} reload=${reload} />`)}
    </ul>`;
}

function Row({ device, channel, path, reload }) {
  const command = useCommand(device, channel.channel);
  const shared = { device, channel, command, label: channelLabel(channel) };
  const { Head, Body } = { Head: None, Body: None, ...CONTROLS[channel.kind] };
  return html`<li class=${`channel ${isOn(channel) ? "on" : ""} ${device.isOnline ? "" : "stale"}`} aria-label=${shared.label}>
    <span class="channel-icon"><${Icon} name=${KIND_ICONS[channel.kind]} /></span>
    <div class="channel-name"><${Name} device=${device} channel=${channel} path=${path} reload=${reload} />
      <small><${ChannelState} channel=${channel} isOnline=${device.isOnline} />${channel.state === null ? null : html` · <${Time} at=${channel.reportedAt} />`} · ${t("channel {number}", { number: channel.channel })}</small></div>
    <${Head} ...${shared} />
    <${Body} ...${shared} />
    <${Life} device=${device} life=${command[0]} />
  </li>`;
}

const None = () => null;

/* Renamed in its place. All channels go to the service, which otherwise takes the names of the others away. */
function Name({ device, channel, path, reload }) {
  const [typed, setTyped] = useState(null);
  const [fault, setFault] = useState("");
  const place = useRef(null);
  const field = useRef(null);
  const wasOpen = useRef(false);
  useEffect(() => {
    if (typed !== null && !wasOpen.current) field.current.select();
    if (typed === null && wasOpen.current) place.current.querySelector("button")?.focus();
    wasOpen.current = typed !== null;
  }, [typed === null]);
  const close = () => (setTyped(null), setFault(""));
  const save = async (event) => {
    event?.preventDefault();
    const renamed = typed.trim() === channelName(channel) ? nameOf(channel) : typed.trim() || null;
    const channels = device.channels.map((each) => ({ channel: each.channel, kind: each.kind, name: each.channel === channel.channel ? renamed : nameOf(each) }));
    try {
      await call("PUT", path, { channels });
    } catch (error) {
      setFault(error.details?.[0]?.message ?? errorText(error));
      return;
    }
    await reload();
    close();
  };
  if (typed === null) {
    return html`<span class="line" ref=${place}><strong>${channelName(channel)}</strong>${mayEdit() ? html`<${Button} kind="quiet" small icon="pencil" label=${t("Rename {name}", { name: channelLabel(channel) })} act=${() => setTyped(channelName(channel))} />` : null}</span>`;
  }
  const id = `channel-${channel.channel}`;
  return html`<form class="rename" ref=${place} onSubmit=${save} onKeyDown=${(event) => event.key === "Escape" && close()}>
    <input ref=${field} id=${id} maxlength="64" value=${typed} aria-label=${t("Name of {name}", { name: channelLabel(channel) })} aria-invalid=${fault ? "true" : null} aria-describedby=${fault ? `${id}-fault` : null} placeholder=${t("As the firmware names it")} onInput=${(event) => setTyped(event.currentTarget.value)} />
    <${Button} icon="check" label=${t("Save")} act=${save} /><${Button} kind="quiet" icon="x" label=${t("Cancel")} act=${close} />
    ${fault ? html`<small id=${`${id}-fault`} class="bad">${fault}</small>` : null}
  </form>`;
}

/* What was set and not answered yet, else what is reported. `send(value)` is called when the person has settled. */
function useSetting(reported, [life], send) {
  const [held, setHeld] = useState(null);
  const timer = useRef(null);
  const waits = life?.kind === "wait";
  useEffect(() => {
    if (!waits && timer.current === null) setHeld(null);
  }, [waits]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const settle = (value) => {
    setHeld(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      timer.current = null;
      send(value);
    }, SETTLE_MS);
  };
  return [held ?? reported, setHeld, settle];
}

const takes = ({ deviceStatus }) => deviceStatus === "ACTIVE";

/* `say(value)`: the value in words; `none`: what stands in for a value that was not reported. */
function Slider({ device, command, label, name, value, none, min = 0, max = 100, step = 1, say, send }) {
  const [shown, hold, settle] = useSetting(value ?? null, command, send);
  const known = shown !== null;
  const text = known ? say(shown) : t("not reported yet");
  const at = Math.min(Math.max(((shown ?? none) - min) / (max - min), 0), 1);
  return html`<label class=${`slider ${known ? "" : "unknown"}`}><span>${name}</span>
    <input type="range" min=${min} max=${max} step=${step} value=${shown ?? none} style=${{ "--at": at }} disabled=${!takes(device)} aria-label=${t("{command}: {name}", { command: name, name: label })} aria-valuetext=${text} onInput=${(event) => hold(Number(event.currentTarget.value))} onChange=${(event) => settle(Number(event.currentTarget.value))} />
    <output>${text}</output></label>`;
}

const power = ({ state }) => (state?.power ? state.power === "ON" : null);
const RelaySwitch = ({ device, channel, command, label }) => html`<${Switch} device=${device} command=${command} name=${label} isOn=${channel.state === null ? null : channel.state === "ON"} />`;
const PowerSwitch = ({ device, channel, command, label }) => html`<${Switch} device=${device} command=${command} name=${label} isOn=${power(channel)} />`;

const Level = ({ channel, ...shared }) => html`<div class="channel-more"><${LevelSlider} channel=${channel} ...${shared} /></div>`;
const LevelSlider = ({ channel: { state }, ...shared }) => html`<${Slider} ...${shared} name=${t("Level")} value=${state?.level} none=${0} say=${percentText} send=${(level) => shared.command[1]({ cmd: "SET_LEVEL", params: { level } })} />`;

function Color({ channel, ...shared }) {
  const { device, command, label } = shared;
  const { state } = channel;
  const [color, hold, settle] = useSetting(state?.color ?? null, command, (value) => command[1]({ cmd: "SET_COLOR", params: { color: value } }));
  return html`<div class="channel-more"><${LevelSlider} channel=${channel} ...${shared} />
    <${Slider} ...${shared} name=${t("White")} value=${state?.kelvin} none=${WHITE.min} ...${WHITE} say=${kelvinText} send=${(kelvin) => command[1]({ cmd: "SET_COLOR", params: { kelvin } })} />
    <label class="slider color"><span>${t("Colour")}</span><input type="color" value=${color ?? "#ffffff"} disabled=${!takes(device)} aria-label=${t("{command}: {name}", { command: t("Colour"), name: label })} onInput=${(event) => hold(event.currentTarget.value)} onChange=${(event) => settle(event.currentTarget.value)} /><output>${color ?? (state?.kelvin ? t("white") : t("not reported yet"))}</output></label>
  </div>`;
}

const MOVES = () => [["OPEN", t("Open"), "chevron-up"], ["STOP", t("Stop"), "square"], ["CLOSE", t("Close"), "chevron-down"]];

function CoverButtons({ device, channel, command: [life, send], label }) {
  const waiting = life?.kind === "wait" ? life.cmd : null;
  return html`<div class="moves" role="group" aria-label=${t("Move {name}", { name: label })}>${MOVES().map(([cmd, text, icon]) => html`<button type="button" class="half" aria-pressed=${cmd === "STOP" ? null : String(channel.state?.position === (cmd === "OPEN" ? 100 : 0))} aria-busy=${waiting === cmd ? "true" : null} disabled=${!takes(device)} aria-label=${t("{command}: {name}", { command: text, name: label })} title=${text} onClick=${() => send({ cmd })}><${Icon} name=${waiting === cmd ? "loader-circle" : icon} size=${20} spin=${waiting === cmd} /></button>`)}</div>`;
}

const Position = ({ channel: { state }, ...shared }) => html`<div class="channel-more"><${Slider} ...${shared} name=${t("Position")} value=${state?.position} none=${0} say=${positionText} send=${(position) => shared.command[1]({ cmd: "SET_POSITION", params: { position } })} /></div>`;

function Target({ device, channel: { state }, command, label }) {
  const [celsius, , settle] = useSetting(state?.targetCelsius ?? null, command, (value) => command[1]({ cmd: "SET_TARGET", params: { celsius: value } }));
  const from = celsius ?? 20;
  const move = (by) => settle(Math.min(Math.max(from + by, TARGET.min), TARGET.max));
  const step = (icon, text, by) => html`<button type="button" class="half" disabled=${!takes(device)} aria-label=${t("{command}: {name}", { command: text, name: label })} title=${text} onClick=${() => move(by)}><${Icon} name=${icon} size=${20} /></button>`;
  return html`<div class="moves target" role="group" aria-label=${t("Target of {name}", { name: label })}>${step("minus", t("Cooler"), -TARGET.step)}<output aria-live="polite">${celsius === null ? "–" : celsiusText(celsius)}</output>${step("plus", t("Warmer"), TARGET.step)}</div>`;
}

function Mode({ device, channel: { state }, command, label }) {
  const [mode, , settle] = useSetting(state?.mode ?? null, command, (value) => command[1]({ cmd: "SET_MODE", params: { mode: value } }));
  const choose = (event) => event.currentTarget.value && settle(event.currentTarget.value);
  return html`<div class="channel-more"><label class="slider"><span>${t("Mode")}</span><select value=${mode ?? ""} disabled=${!takes(device)} aria-label=${t("{command}: {name}", { command: t("Mode"), name: label })} onChange=${choose}>${mode === null ? html`<option value="" selected>${t("not reported yet")}</option>` : null}${MODE_OPTIONS().map(([value, text]) => html`<option value=${value} selected=${value === mode}>${text}</option>`)}</select></label></div>`;
}

const CONTROLS = { RELAY: { Head: RelaySwitch }, LEVEL: { Head: PowerSwitch, Body: Level }, COLOR: { Head: PowerSwitch, Body: Color }, COVER: { Head: CoverButtons, Body: Position }, CLIMATE: { Head: Target, Body: Mode }, INPUT: {} };

const SHOWN = 2;

/* In the device list: the first two, and how many more. */
export function FewChannels({ device }) {
  const more = device.channels.length - SHOWN;
  return html`<ul class="few-channels" aria-label=${t("Channels of {name}", { name: device.name })}>
    ${device.channels.slice(0, SHOWN).map((channel) => html`<${FewRow} key=${channel.channel} device=${device} channel=${channel} />`)}
    ${more > 0 ? html`<li><a href=${`#/device/${device.deviceId}`}>${t("{count} more", { count: more })}</a></li>` : null}
  </ul>`;
}

function FewRow({ device, channel }) {
  const command = useCommand(device, channel.channel);
  const { Head } = { Head: None, ...CONTROLS[channel.kind] };
  return html`<li><div class="grow"><span>${channelName(channel)}</span> <small><${ChannelState} channel=${channel} isOnline=${device.isOnline} /></small></div>
    <${Head} device=${device} channel=${channel} command=${command} label=${`${device.name}, ${channelLabel(channel)}`} />
    <${Life} device=${device} life=${command[0]} /></li>`;
}

const SUMMED_UP = 6;

/* On the other pages of the device, in one line. */
export function channelsSummary({ channels }) {
  const said = channels.slice(0, SUMMED_UP).map((channel) => `${channelName(channel)}: ${stateText(channel)}`);
  return [...said, ...(channels.length > SUMMED_UP ? [t("{count} more", { count: channels.length - SUMMED_UP })] : [])].join(" · ");
}
