/*
 * The channels of a device: their names, their states in words, and the commands that each has. A device of one relay has none to choose from,
 * and looks like the relay alone.
 *
 * channel: {channel, kind, name, state, reportedAt} of the service. A channel is always called by its name: `Gate (channel 2)`.
 */

import { html } from "./html.js";
import { number } from "./format.js";
import { t, word } from "./i18n.js";

const RELAY = 1;

/* Whether there is more than the relay. */
export const hasChannels = ({ channels = [] }) => channels.length > 1 || (channels.length === 1 && channels[0].kind !== "RELAY");

const KINDS = () => ({ RELAY: t("Relay"), LEVEL: t("Level"), COLOR: t("Color"), COVER: t("Cover"), CLIMATE: t("Climate"), INPUT: t("Input") });
export const KIND_ICONS = { RELAY: "toggle-left", LEVEL: "lightbulb", COLOR: "palette", COVER: "blinds", CLIMATE: "thermometer", INPUT: "circle-dot" };

const isUnnamed = ({ kind, name, channel }) => name.toLowerCase() === `${kind} ${channel}`.toLowerCase();

/* What a person or the firmware has called it; null for neither. */
export const nameOf = (channel) => (isUnnamed(channel) ? null : channel.name);
/* Its name; of one that nobody has named its kind and number. */
export const channelName = (channel) => (isUnnamed(channel) ? `${KINDS()[channel.kind]} ${channel.channel}` : channel.name);
export const nameLabel = (name, number) => t("{name} (channel {number})", { name, number });
export const channelLabel = (channel) => (isUnnamed(channel) ? channelName(channel) : nameLabel(channel.name, channel.channel));

const findChannel = (channels, number) => channels.find(({ channel }) => channel === number);

/* The label of a channel by its number, among those that are known; "" for the relay of a device that has only this. */
export function labelOf(channels, number) {
  const found = findChannel(channels, number);
  if (!hasChannels({ channels }) && number === RELAY) return "";
  return found ? channelLabel(found) : t("channel {number}", { number });
}

export const labelsOf = (channels, numbers) => numbers.map((each) => labelOf(channels, each) || t("Relay")).join(", ");

/* `ON Gate (channel 2)`: the command of a slot, rule or execution. */
export const orderText = ({ command, cmd = command, channel = RELAY }, channels = []) => [cmd, labelOf(channels, channel)].filter(Boolean).join(" · ");

/* For a choice; without those that take no commands. */
export const channelOptions = (channels) => channels.filter(({ kind }) => kind !== "INPUT").map((each) => [String(each.channel), channelLabel(each)]);

/* The commands that a channel has; a name is there once. */
export const commandsFor = (commands, number) => commands.filter(({ channels = [] }) => !channels.length || channels.includes(Number(number)));

/* The command to begin with: the given one if the channel has it, else the first wanted one that it has. */
export function commandOf(commands, number, given, wanted = ["ON", "OPEN"]) {
  const names = commandsFor(commands, number).map(({ name }) => name);
  return [given, ...wanted].find((each) => names.includes(each)) ?? names[0] ?? "";
}

/* The body of a call names no channel where it is the relay. */
export const channelBody = (number) => (Number(number) === RELAY ? {} : { channel: Number(number) });

export const isSwitched = ({ kind }) => ["RELAY", "LEVEL", "COLOR"].includes(kind);
export const isOn = (channel) => channel.state !== null && isSwitched(channel) && (channel.state.power ?? channel.state) === "ON";
export const isLit = (device) => (hasChannels(device) ? device.channels.some(isOn) : Boolean(device.relayState));

const ACTIONS = () => ({ SINGLE: t("pressed once"), DOUBLE: t("pressed twice"), TRIPLE: t("pressed three times"), LONG: t("held down"), ON: t("On"), OFF: t("Off") });
const MODES = () => ({ OFF: t("off"), HEAT: t("heat"), COOL: t("cool"), AUTO: t("automatic"), DRY: t("dry"), FAN_ONLY: t("fan only") });
export const MODE_OPTIONS = () => Object.entries(MODES());

const percent = (value) => `${number(value)} %`;
const given = (value) => value !== null && value !== undefined;

export function positionText(position) {
  return position === 0 ? t("closed") : position === 100 ? t("open") : t("{percent} open", { percent: percent(position) });
}

/* What the channel reported last. */
export function stateText({ kind, state }) {
  if (!given(state)) return t("not reported yet");
  const power = state.power ? (state.power === "ON" ? t("On") : t("Off")) : null;
  const level = given(state.level) && state.power !== "OFF" ? percent(state.level) : null;
  const parts = {
    RELAY: () => [state === "ON" ? t("On") : t("Off")],
    INPUT: () => [ACTIONS()[state] ?? word(state)],
    LEVEL: () => [power, level],
    COLOR: () => [power, level, state.power === "OFF" ? null : given(state.kelvin) ? kelvinText(state.kelvin) : state.color],
    COVER: () => [state.moving ? (state.moving === "OPENING" ? t("opening") : t("closing")) : null, given(state.position) ? positionText(state.position) : null],
    CLIMATE: () => [given(state.targetCelsius) ? `${number(state.targetCelsius)} °C` : null, state.mode ? (MODES()[state.mode] ?? word(state.mode)) : null],
  }[kind]();
  return parts.filter(given).join(", ");
}

export const percentText = percent;
export const kelvinText = (kelvin) => t("white, {kelvin} K", { kelvin });
export const celsiusText = (celsius) => `${number(celsius)} °C`;

export function ChannelState({ channel, isOnline }) {
  const text = stateText(channel);
  return html`<span class=${`relay ${isOn(channel) ? "on" : "off"}`}>${given(channel.state) && !isOnline ? t("{state}, last known", { state: text }) : text}</span>`;
}

const FIELDS = { LEVEL: "level", COLOR: "kelvin", COVER: "position", CLIMATE: "targetCelsius" };
/* A state that the feed told before the channel became one of another kind says nothing of it. */
const fits = (kind, state) => (kind in FIELDS ? state !== null && typeof state === "object" && FIELDS[kind] in state : typeof state === "string");

/* With what the feed said of it since it was loaded: {power, state, at}. */
export function withReport(channel, report) {
  if (!report) return channel;
  const { kind } = channel;
  const state = fits(kind, report.state) ? report.state : channel.state;
  const switched = { RELAY: report.power, LEVEL: { ...state, power: report.power }, COLOR: { ...state, power: report.power } }[kind];
  return { ...channel, state: report.power === undefined ? state : (switched ?? state), reportedAt: new Date(report.at).toISOString() };
}
