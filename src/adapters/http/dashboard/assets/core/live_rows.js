/*
 * A list of the newest rows that "Show more" has made longer, and that stays live. New rows push others off the first page; once the list is
 * longer than that page they stay, so each row is in the list exactly once and none is missing between two.
 *
 *   const rows = useRows(`/approvals?limit=25`, "approvalId");     // the path of the first page, and the name of a row's id
 *   const page = useLoad((signal) => rows.load(signal), [path], …);  // {data, next}
 *   <${More} next=${page.data.next} load=${() => rows.more(page.data, page.reload)} />
 */

import { get, getPage } from "./api.js";
import { useRef } from "./html.js";

const MOST_PAGES_MISSED = 5;

/* `fetchPage(path, signal)` returns {data, next}: the rows, and the path of the next page or null. */
export function useRows(path, id, fetchPage = getPage) {
  const longer = useRef({ path: "", page: null });
  if (longer.current.path !== path) longer.current = { path, page: null };
  const held = longer.current;
  return {
    async load(signal) {
      const first = await fetchPage(path, signal);
      if (held.page !== null) held.page = await join(first, held.page, id, (next) => fetchPage(next, signal));
      return held.page ?? first;
    },
    /* `shown`: what the person sees. The next page continues it; `reload` then puts the newest before it. */
    async more(shown, reload) {
      const { data, next } = await fetchPage(shown.next);
      held.page = { data: [...shown.data, ...data], next };
      await reload();
    },
  };
}

/* The newest rows, then the held ones after them; null where so many came meanwhile that the list begins again. */
async function join(first, held, id, fetchNext) {
  const places = new Map(held.data.map((row, place) => [row[id], place]));
  const fresh = [...first.data];
  for (let last = first, pages = 1; last.next !== null && !last.data.some((row) => places.has(row[id])); pages += 1) {
    if (pages === MOST_PAGES_MISSED) return null;
    last = await fetchNext(last.next);
    fresh.push(...last.data);
  }
  const known = fresh.findLast((row) => places.has(row[id]));
  return known === undefined ? { data: fresh, next: null } : { data: [...fresh, ...held.data.slice(places.get(known[id]) + 1)], next: held.next };
}

/* For the lists that answer {data, hasMore, cursor}. */
export async function getCursorPage(path, signal) {
  const { data, hasMore, cursor } = await get(path, signal);
  const [place, query] = path.split("?");
  const next = new URLSearchParams(query);
  next.set("cursor", cursor ?? "");
  return { data, next: hasMore ? `${place}?${next}` : null };
}
