/* The account's log, newest first; new events appear at the top. */

import { get } from "../api.js";
import { names } from "../names.js";
import { badge, button, exact, fill, h, row, section, table } from "../dom.js";

const LOOK_AFTER_MS = 500;
const HEADS = ["When", "What", "", "Device", "By"];
const KINDS = [/refused|failed|offline|lost|revoked|denied/, /online|approved|generated|created/];

export async function log(room, { fleet, signal }) {
  const named = await names(signal);
  const type = h("input", { type: "search", placeholder: "Type, such as command_sent", "aria-label": "Event type", list: "types" });
  const types = h("datalist", { id: "types" });
  const list = h("div");
  let page = { data: [], cursor: null, hasMore: false };

  const query = (more) => new URLSearchParams({ limit: 50, ...(type.value ? { type: type.value } : {}), ...more });
  const draw = () => {
    fill(types, [...new Set(page.data.map(({ eventType }) => eventType))].sort().map((value) => h("option", { value })));
    const older = page.hasMore ? button("Older", more) : null;
    fill(list, table(HEADS, page.data.map((event) => recorded(event, named, true)), "No events."), older);
  };
  const first = async () => {
    page = await get(`/events?${query({})}`, signal);
    draw();
  };
  const more = async () => {
    const next = await get(`/events?${query({ cursor: page.cursor })}`, signal);
    page = { ...next, data: [...page.data, ...next.data] };
    draw();
  };
  type.addEventListener("change", () => first().catch((error) => fill(list, h("p", { class: "problem" }, error.message))));
  fill(room, h("h1", null, "Log"), section("Events", [type, types], list));
  await first();
  let soon = null;
  const unwatch = fleet.watch((deviceId) => {
    if (deviceId === null || page.data.length > 50) return; // keeps the position while older pages are open
    clearTimeout(soon);
    soon = setTimeout(() => first().catch(() => {}), LOOK_AFTER_MS);
  });
  signal.addEventListener("abort", () => (unwatch(), clearTimeout(soon)));
}

export function recorded({ timestamp, eventType, description, deviceId, deviceName, source, address }, named, withDevice) {
  const kind = KINDS[0].test(eventType) ? "bad" : KINDS[1].test(eventType) ? "good" : "";
  const device = deviceId ? h("a", { href: `#/device/${deviceId}` }, deviceName || deviceId) : "";
  const by = [named(source), address ? h("small", null, address) : null];
  return row(exact(timestamp), badge(eventType.replaceAll("_", " "), kind), description, ...(withDevice ? [device] : []), by);
}
