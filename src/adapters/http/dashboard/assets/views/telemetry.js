/* Latest value of each metric, updated by the feed, and a chart of one metric. */

import { get, token } from "../api.js";
import { busy, fill, h, row, section, table, time } from "../dom.js";
import { chart } from "../chart.js";
import { Feed } from "../feed.js";

const RANGES = [["1h", "Last hour", 3_600_000, "1m"], ["24h", "Last day", 86_400_000, "15m"], ["7d", "Last week", 604_800_000, "2h"], ["30d", "Last 30 days", 2_592_000_000, "12h"]];
const REDRAW_MS = 3_000;

export async function telemetry(room, { deviceId, path, signal }) {
  const { telemetry: readings } = await get(`${path}/telemetry/latest`, signal);
  const latest = new Map(readings.map((reading) => [reading.metric, reading]));
  const values = h("div");
  const picture = h("div", { class: "chart" });
  const range = h("select", { "aria-label": "Time" }, RANGES.map(([value, label]) => h("option", { value }, label)));
  let metric = readings.find((reading) => reading.value !== null)?.metric ?? null;

  const list = () => {
    const name = (each) => (each.value === null ? each.metric : h("button", { type: "button", class: "quiet", "aria-pressed": String(each.metric === metric), onclick: () => pick(each.metric) }, each.metric));
    const rows = [...latest.values()].sort((a, b) => a.metric.localeCompare(b.metric)).map((each) => row(name(each), h("strong", null, shown(each)), each.unit ?? "", time(each.recordedAt)));
    fill(values, table(["Metric", "Value", "Unit", "When"], rows, "The device has reported nothing yet."));
  };
  const draw = async () => {
    if (metric === null) return;
    const [, label, span, step] = RANGES.find(([value]) => value === range.value);
    const since = Date.now() - span;
    const buckets = await get(`${path}/telemetry?metric=${encodeURIComponent(metric)}&step=${step}&since=${since}&limit=1000`, signal);
    fill(picture, chart(buckets.reverse(), { since, until: Date.now(), title: `${metric}, ${label.toLowerCase()}`, unit: latest.get(metric)?.unit ?? "" }));
  };
  const pick = (name) => {
    metric = name;
    list();
    return draw();
  };
  range.addEventListener("change", draw);
  const download = ["csv", "ndjson"].map((format) => h("button", { type: "button", class: "quiet", onclick: (event) => busy(event.currentTarget, () => save(path, deviceId, format)) }, `Save all as ${format.toUpperCase()}`));
  fill(room, section("Latest values", [], values), section("Chart", [range, download], picture));
  list();
  await draw();

  let stale = false;
  const feed = new Feed({ deviceId, types: "telemetry" }, (message) => {
    if (message.type !== "telemetry") return;
    latest.set(message.metric, { ...message, recordedAt: new Date(message.timestamp).toISOString() });
    stale = true;
  });
  const timer = setInterval(() => {
    if (!stale) return;
    stale = false;
    list();
    draw().catch(() => {});
  }, REDRAW_MS);
  signal.addEventListener("abort", () => (clearInterval(timer), feed.close()));
}

function shown({ value, valueText }) {
  return value === null ? valueText : new Intl.NumberFormat(undefined, { maximumSignificantDigits: 8 }).format(value);
}

/* A link cannot carry the token, so the file is fetched first. */
async function save(path, deviceId, format) {
  const answer = await fetch(`/api/v1${path}/telemetry/export?format=${format}`, { headers: { Authorization: `Bearer ${await token()}` } });
  if (!answer.ok) throw new Error("The telemetry could not be downloaded. Try again.");
  const url = URL.createObjectURL(await answer.blob());
  h("a", { href: url, download: `${deviceId}.${format}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
