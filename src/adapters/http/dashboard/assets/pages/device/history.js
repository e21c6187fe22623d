/* The device's audit log. */

import { get } from "../../core/api.js";
import { html, useState } from "../../core/html.js";
import { t } from "../../core/i18n.js";
import { ofDevice, useLoad } from "../../core/live.js";
import { loadNames } from "../../core/session.js";
import { Card, Empty, Loaded, More } from "../../ui/base.js";
import { EventLine } from "../log.js";

const PAGE = 50;

export function History({ device, path }) {
  const [older, setOlder] = useState({ data: [], full: null });
  const page = useLoad((signal) => Promise.all([get(`${path}/events?limit=${PAGE}`, signal), loadNames(signal)]), [path], ofDevice(device.deviceId));
  const more = async () => {
    const last = older.data.at(-1) ?? page.data[0].at(-1);
    const next = await get(`${path}/events?limit=${PAGE}&before=${last.timestamp}`);
    setOlder({ data: [...older.data, ...next], full: next.length === PAGE });
  };
  return html`<${Card} title=${t("History")}>
    <${Loaded} of=${page} lines=${8}>${([data, named]) => data.length ? html`<ul class="lines">${[...data, ...older.data].map((event) => html`<${EventLine} key=${event.id} event=${event} named=${named} />`)}</ul>
      <${More} next=${older.full ?? data.length === PAGE} load=${more} />` : html`<${Empty} icon="scroll-text" title=${t("Nothing has happened yet")} />`}<//>
  <//>`;
}
