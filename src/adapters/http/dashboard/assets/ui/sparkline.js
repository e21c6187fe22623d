/* The last value of a device's first metric, with a line of its last day. Loaded when it comes into view. */

import { get } from "../core/api.js";
import { reading } from "../core/format.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { t } from "../core/i18n.js";

const DAY_MS = 86_400_000;
const WIDTH = 96;
const HEIGHT = 28;
const RELOAD_MS = 60_000;
export const PREFERRED = ["temperature", "power", "humidity", "current"];

export function DeviceSpark({ device }) {
  const box = useRef(null);
  const [data, setData] = useState(null);
  const { deviceId } = device;
  useEffect(() => {
    const controller = new AbortController();
    let timer = null;
    const load = () => {
      loadSpark(deviceId, controller.signal).then(setData, () => {});
      timer = setTimeout(load, RELOAD_MS);
    };
    const watcher = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting) return;
      watcher.disconnect();
      load();
    });
    watcher.observe(box.current);
    return () => (watcher.disconnect(), clearTimeout(timer), controller.abort());
  }, [deviceId]);
  return html`<div class="spark" ref=${box}>${data ? html`<${Spark} values=${data.values} /><span><strong>${reading(data.latest)}</strong><small>${data.latest.metric}</small></span>` : null}</div>`;
}

async function loadSpark(deviceId, signal) {
  const { telemetry } = await get(`/devices/${deviceId}/telemetry/latest`, signal);
  const numbers = telemetry.filter(({ value }) => value !== null);
  const latest = PREFERRED.map((name) => numbers.find(({ metric }) => metric === name)).find(Boolean) ?? numbers[0] ?? telemetry[0];
  if (!latest) return null;
  if (latest.value === null) return { latest, values: [] };
  const query = new URLSearchParams({ metric: latest.metric, step: "15m", since: Date.now() - DAY_MS, limit: 97 });
  const buckets = await get(`/devices/${deviceId}/telemetry?${query}`, signal);
  return { latest, values: buckets.reverse().map(({ from, mean }) => [Date.parse(from), mean]) };
}

/* `values`: [[ms, value]], oldest first. */
function Spark({ values }) {
  if (values.length < 2) return html`<svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} width=${WIDTH} height=${HEIGHT} aria-hidden="true"><line x1="0" x2=${WIDTH} y1=${HEIGHT / 2} y2=${HEIGHT / 2} class="spark-none" /></svg>`;
  const numbers = values.map(([, value]) => value);
  const low = Math.min(...numbers);
  const spread = Math.max(...numbers) - low || 1;
  const [start, end] = [values[0][0], values.at(-1)[0]];
  const points = values.map(([at, value]) => `${(((at - start) / (end - start)) * WIDTH).toFixed(1)},${(HEIGHT - 3 - ((value - low) / spread) * (HEIGHT - 6)).toFixed(1)}`);
  return html`<svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} width=${WIDTH} height=${HEIGHT} role="img" aria-label=${t("The last day")}><polyline points=${points.join(" ")} /></svg>`;
}
