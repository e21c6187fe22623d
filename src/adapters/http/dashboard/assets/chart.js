/* An SVG chart of one metric: the mean as a line, minimum to maximum as a band. */

import { exact, h, svg } from "./dom.js";

const WIDTH = 800;
const HEIGHT = 240;
const LEFT = 64;
const BOTTOM = 24;
const TOP = 10;

/* `buckets`: [{from, min, max, mean, count}], oldest first. */
export function chart(buckets, { since, until, title, unit }) {
  if (!buckets.length) return h("p", { class: "empty" }, `${title}: no readings.`);
  const low = Math.min(...buckets.map(({ min }) => min));
  const high = Math.max(...buckets.map(({ max }) => max));
  const spread = high - low || Math.abs(high) || 1;
  const bottom = low - spread * 0.05;
  const top = high + spread * 0.05;
  const x = (ms) => LEFT + ((Math.max(ms, since) - since) / (until - since)) * (WIDTH - LEFT - 8);
  const y = (value) => TOP + (1 - (value - bottom) / (top - bottom)) * (HEIGHT - TOP - BOTTOM);
  const at = buckets.map((bucket) => ({ ...bucket, x: x(Date.parse(bucket.from)).toFixed(1) }));
  const line = at.map((each, index) => `${index ? "L" : "M"}${each.x} ${y(each.mean).toFixed(1)}`).join("");
  const band = at.map((each, index) => `${index ? "L" : "M"}${each.x} ${y(each.max).toFixed(1)}`).join("") + at.toReversed().map((each) => `L${each.x} ${y(each.min).toFixed(1)}`).join("") + "Z";
  const number = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 5 });
  const marks = [low, (low + high) / 2, high].flatMap((value) => [
    svg("line", { x1: LEFT, x2: WIDTH - 8, y1: y(value), y2: y(value), class: "grid" }),
    text(number.format(value), { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }),
  ]);
  const ends = [text(exact(since), { x: LEFT, y: HEIGHT - 6 }), text(exact(until), { x: WIDTH - 8, y: HEIGHT - 6, "text-anchor": "end" })];
  const dots = at.map((each) => {
    const dot = svg("circle", { cx: each.x, cy: y(each.mean), r: at.length > 120 ? 1.5 : 3 });
    dot.append(svg("title", {}, `${exact(Date.parse(each.from))}: ${number.format(each.mean)} ${unit} (${number.format(each.min)} to ${number.format(each.max)}, ${each.count} readings)`));
    return dot;
  });
  const last = at.at(-1);
  const told = `${title}: ${number.format(last.mean)} ${unit} last, between ${number.format(low)} and ${number.format(high)}`;
  return h("figure", null, h("figcaption", null, told), svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told }, ...marks, svg("path", { d: band, class: "band" }), svg("path", { d: line, class: "mean" }), ...dots, ...ends));
}

function text(content, attributes) {
  const element = svg("text", attributes);
  element.textContent = content;
  return element;
}
