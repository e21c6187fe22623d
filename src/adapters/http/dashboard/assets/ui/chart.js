/*
 * A chart of one metric over time: the mean as a line, minimum to maximum as a band, and marks for what happened. Dragging zooms.
 *
 * buckets: [{from, min, max, mean, count}], oldest first; marks: [{at (ms), kind: "command" | "matched" | "fired", label}]; range: [ms, ms].
 * `limits` are values to draw as a level line. Charts with the same `group` share their cursor.
 */

import { exact, number, reading } from "../core/format.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { locale, t } from "../core/i18n.js";

const HEIGHT = 180;
const MANY_MARKS = 40;
const COLOURS = { command: "--accent", matched: "--warn", fired: "--bad" };

export function Chart({ title, unit, buckets, marks = [], range, onZoom, group, limits = [], action }) {
  const box = useRef(null);
  const [at, setAt] = useState(null);
  useEffect(() => {
    if (!buckets.length) return undefined;
    let plot = null;
    let gone = false;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const draw = async () => {
      const { default: uPlot } = await import("../vendor/uplot.js");
      if (gone || !box.current) return;
      plot?.destroy();
      plot = new uPlot(options(uPlot, box.current, { buckets, marks, range, onZoom, group, limits, setAt }), columns(buckets), box.current);
    };
    draw();
    const sized = new ResizeObserver(() => box.current && plot?.setSize({ width: box.current.clientWidth, height: HEIGHT }));
    sized.observe(box.current);
    dark.addEventListener("change", draw);
    return () => {
      gone = true;
      sized.disconnect();
      dark.removeEventListener("change", draw);
      plot?.destroy();
    };
  }, [buckets, marks, range[0], range[1], limits.join()]);
  const shown = (at === null ? null : buckets[at]) ?? buckets.at(-1);
  const value = shown ? html`<strong>${reading({ value: shown.mean, unit })}</strong><small>${t("{low} to {high}", { low: number(shown.min), high: number(shown.max) })} · ${exact(shown.from)}</small>` : null;
  const near = shown && at !== null ? marks.filter((mark) => Math.abs(mark.at - Date.parse(shown.from)) < (range[1] - range[0]) / 60) : [];
  return html`<figure class="chart" aria-label=${t("Chart of {title}", { title })}>
    <figcaption><span class="grow">${title}</span><span class="chart-value">${value}</span>${action}</figcaption>
    ${buckets.length ? html`<div class="plot" ref=${box} role="img" aria-label=${t("{title}: {count} points, last {value}", { title, count: buckets.length, value: reading({ value: buckets.at(-1).mean, unit }) })}></div>` : html`<p class="dim plot-empty">${t("No readings in this time.")}</p>`}
    <p class="chart-marks">${near.map((mark) => html`<span class=${`mark ${mark.kind}`}>${mark.label}</span>`)}</p>
  </figure>`;
}

function columns(buckets) {
  return [buckets.map(({ from }) => Date.parse(from) / 1000), ...["mean", "min", "max"].map((name) => buckets.map((each) => each[name]))];
}

function options(uPlot, box, { buckets, marks, range, onZoom, group, limits, setAt }) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  const line = { stroke: colour("--chart"), width: 2, points: { show: buckets.length < 60, size: 5 } };
  const edge = { stroke: "transparent", width: 0, points: { show: false } };
  const levels = [...buckets.flatMap(({ min, max }) => [min, max]), ...limits];
  const [low, high] = [Math.min(...levels), Math.max(...levels)];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return {
    width: box.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: Boolean(onZoom), y: false, setScale: false }, ...(group ? { sync: { key: group } } : {}) },
    scales: { x: { time: true, range: range.map((each) => each / 1000) }, y: { range: [low - room, high + room] } },
    axes: [{ ...axis, values: times(range) }, { ...axis, size: 56, values: (_, values) => values.map((each) => number(each)) }],
    series: [{}, line, edge, edge],
    bands: [{ series: [3, 2], fill: colour("--chart-band") }],
    hooks: {
      draw: [(plot) => drawMarks(plot, marks, limits, colour)],
      setCursor: [({ cursor }) => setAt(cursor.idx ?? null)],
      setSelect: [(plot) => {
        const { left, width } = plot.select;
        if (onZoom && width > 8) onZoom([plot.posToVal(left, "x") * 1000, plot.posToVal(left + width, "x") * 1000]);
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }],
    },
  };
}

function times([since, until]) {
  const days = until - since > 2 * 86_400_000;
  const format = new Intl.DateTimeFormat(locale(), days ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit" });
  return (_, values) => values.map((each, index) => {
    const text = format.format(each * 1000);
    return index && format.format(values[index - 1] * 1000) === text ? "" : text;
  });
}

function drawMarks(plot, marks, limits, colour) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.globalAlpha = marks.length > MANY_MARKS ? 0.35 : 1;
  ctx.lineWidth = devicePixelRatio;
  const stroke = (name, dashes, from, to) => {
    ctx.strokeStyle = colour(name);
    ctx.setLineDash(dashes.map((each) => each * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(...from);
    ctx.lineTo(...to);
    ctx.stroke();
  };
  for (const { at, kind } of marks) {
    const x = plot.valToPos(at / 1000, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    stroke(COLOURS[kind], kind === "command" ? [] : [4, 3], [x, bbox.top], [x, bbox.top + bbox.height]);
  }
  for (const level of limits) {
    const y = plot.valToPos(level, "y", true);
    stroke("--bad", [6, 4], [bbox.left, y], [bbox.left + bbox.width, y]);
  }
  ctx.restore();
}

const STEPS = [["10s", 10], ["30s", 30], ["1m", 60], ["5m", 300], ["15m", 900], ["30m", 1_800], ["1h", 3_600], ["2h", 7_200], ["6h", 21_600], ["12h", 43_200], ["1d", 86_400], ["7d", 604_800]];
const POINTS = 220;

/* The step of the service's buckets for a chart of this range. */
export function stepFor([since, until]) {
  const wanted = (until - since) / 1000 / POINTS;
  return (STEPS.find(([, size]) => size >= wanted) ?? STEPS.at(-1))[0];
}
