/* Charts of the device's metrics, with the commands and rule firings of the same time as marks. */

import { download, get } from "../../core/api.js";
import { reading } from "../../core/format.js";
import { html, useState } from "../../core/html.js";
import { serviceText, t } from "../../core/i18n.js";
import { ofDevice, useLoad } from "../../core/live_data_hooks.js";
import { Button, Card, Choice, Empty, Loaded, Time } from "../../ui/basic_components.js";
import { Chart, stepFor } from "../../ui/chart.js";
import { PREFERRED } from "../../ui/sparkline.js";

const HOUR_MS = 3_600_000;
const RANGES = () => [["1", t("Hour")], ["24", t("Day")], ["168", t("Week")], ["720", t("Month")], ["8760", t("Year")]];
const SHOWN_FIRST = 3;
const GROUP = "device";

export function Telemetry({ device, path }) {
  const { deviceId } = device;
  const latest = useLoad((signal) => get(`${path}/telemetry/latest`, signal), [path, device.lastSeen]);
  const [hours, setHours] = useState("24");
  const [zoom, setZoom] = useState(null);
  const [chosen, setChosen] = useState(null);
  return html`<${Loaded} of=${latest}>${({ telemetry }) => {
    if (!telemetry.length) return html`<${Card}><${Empty} icon="activity" title=${t("The device has reported no values yet")}>${t("Charts appear with its first telemetry message.")}<//><//>`;
    const numeric = telemetry.filter(({ value }) => value !== null);
    const rank = ({ metric }) => (PREFERRED.indexOf(metric) + 1 || PREFERRED.length + 1);
    const shown = chosen ?? [...numeric].sort((one, other) => rank(one) - rank(other)).slice(0, SHOWN_FIRST).map(({ metric }) => metric);
    const toggle = (metric) => setChosen(shown.includes(metric) ? shown.filter((each) => each !== metric) : [...shown, metric]);
    return html`
      <div class="toolbar"><${Choice} label=${t("Time")} options=${RANGES()} value=${zoom ? "" : hours} onChange=${(value) => (setHours(value), setZoom(null))} />
        ${zoom ? html`<${Button} icon="rotate-ccw" act=${() => setZoom(null)}>${t("Zoom out")}<//>` : null}
        <${Button} icon="download" act=${() => download(`${path}/telemetry/export?format=csv`, `${deviceId}.csv`)}>CSV<//></div>
      <div class="tiles">${telemetry.map((each) => html`<button type="button" class="tile" key=${each.metric} disabled=${each.value === null} aria-pressed=${String(shown.includes(each.metric))} onClick=${() => toggle(each.metric)}><small>${each.metric}</small><strong>${reading(each)}</strong><small><${Time} at=${each.recordedAt} /></small></button>`)}</div>
      <${Charts} deviceId=${deviceId} path=${path} metrics=${numeric.filter(({ metric }) => shown.includes(metric))} hours=${Number(hours)} zoom=${zoom} setZoom=${setZoom} />`;
  }}<//>`;
}

function Charts({ deviceId, path, metrics, hours, zoom, setZoom }) {
  const names = metrics.map(({ metric }) => metric).join();
  const data = useLoad(async (signal) => {
    const range = zoom ?? [Date.now() - hours * HOUR_MS, Date.now()];
    const [marks, ...buckets] = await Promise.all([loadMarks(deviceId, range, signal), ...metrics.map(({ metric }) => loadBuckets(path, metric, range, signal))]);
    return { range, marks, buckets: new Map(metrics.map(({ metric }, index) => [metric, buckets[index]])) };
  }, [path, names, hours, zoom?.[0], zoom?.[1]], ofDevice(deviceId, "command_sent", "rule_matched"));
  return html`<${Card}><${Loaded} of=${data} lines=${6}>${({ range, marks, buckets }) => html`
    ${metrics.filter(({ metric }) => buckets.has(metric)).map(({ metric, unit }) => html`<${Chart} key=${metric} title=${metric} unit=${unit} buckets=${buckets.get(metric)} marks=${marks} range=${range} onZoom=${setZoom} group=${GROUP} />`)}
    <p class="legend"><span class="mark command">${t("command sent")}</span><span class="mark matched">${t("rule fired")}</span><small>${t("The band reaches from the lowest to the highest reading. Drag over a chart to zoom.")}</small></p>`}<//><//>`;
}

export async function loadBuckets(path, metric, range, signal) {
  const query = new URLSearchParams({ metric, step: stepFor(range), since: Math.floor(range[0]), until: Math.ceil(range[1]), limit: 1000 });
  return (await get(`${path}/telemetry?${query}`, signal)).reverse();
}

async function loadMarks(deviceId, [since, until], signal) {
  const of = async (type, kind) => {
    const query = new URLSearchParams({ deviceId, type, since: Math.floor(since), until: Math.ceil(until), limit: 200 });
    return (await get(`/events?${query}`, signal)).data.map(({ timestamp, description }) => ({ at: timestamp, kind, label: serviceText(description) }));
  };
  return (await Promise.all([of("command_sent", "command"), of("rule_matched", "matched")])).flat();
}
