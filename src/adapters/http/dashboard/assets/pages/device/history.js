/* The device's audit log. */

import { get } from "../../core/api.js";
import { html, useState } from "../../core/html.js";
import { t } from "../../core/i18n.js";
import { ofDevice, useLoad } from "../../core/live.js";
import { loadNames } from "../../core/session.js";
import { Card, Empty, Loaded, More } from "../../ui/base.js";
import { EventLine } from "../log.js";

const PAGE = 50;

export function History({ device }) {
  const [older, setOlder] = useState({ data: [], cursor: undefined });
  const log = `/events?deviceId=${device.deviceId}&limit=${PAGE}`;
  const page = useLoad((signal) => Promise.all([get(log, signal), loadNames(signal)]), [log], ofDevice(device.deviceId));
  const more = async () => {
    const cursor = older.cursor ?? page.data[0].cursor;
    const next = await get(`${log}&cursor=${encodeURIComponent(cursor)}`);
    setOlder({ data: [...older.data, ...next.data], cursor: next.hasMore ? next.cursor : null });
  };
  return html`<${Card} title=${t("History")}>
    <${Loaded} of=${page} lines=${8}>${([{ data, hasMore }, named]) => data.length ? html`<ul class="lines">${[...data, ...older.data].map((event) => html`<${EventLine} key=${event.id} event=${event} named=${named} />`)}</ul>
      <${More} next=${older.cursor === undefined ? hasMore : older.cursor} load=${more} />` : html`<${Empty} icon="scroll-text" title=${t("Nothing has happened yet")} />`}<//>
  <//>`;
}
