/* The device's audit log. */

import { get } from "../api.js";
import { button, fill, section, table } from "../dom.js";
import { names } from "../names.js";
import { recorded } from "./log.js";

const PAGE = 100;

export async function history(room, { path, signal }) {
  const named = await names(signal);
  let shown = await get(`${path}/events?limit=${PAGE}`, signal);
  const draw = (last) => {
    const more = last.length === PAGE ? button("Older", older) : null;
    fill(room, section("History", [], table(["When", "What", "", "By"], shown.map((event) => recorded(event, named, false)), "Nothing yet."), more));
  };
  const older = async () => {
    const next = await get(`${path}/events?limit=${PAGE}&before=${shown.at(-1).timestamp}`, signal);
    shown = [...shown, ...next];
    draw(next);
  };
  draw(shown);
}
