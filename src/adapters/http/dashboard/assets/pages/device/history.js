/* The device's audit log. */

import { html } from "../../core/html.js";
import { t } from "../../core/i18n.js";
import { ofDevice, useLoad } from "../../core/live_data_hooks.js";
import { loadNames } from "../../core/signed_in_user.js";
import { Card, Empty, Loaded, More } from "../../ui/basic_components.js";
import { EventLine, useEventRows } from "../event_log.js";

export function History({ device: { deviceId } }) {
  const rows = useEventRows(`deviceId=${deviceId}`);
  const page = useLoad((signal) => Promise.all([rows.load(signal), loadNames()]), [deviceId], ofDevice(deviceId));
  return html`<${Card} title=${t("History")}>
    <${Loaded} of=${page} lines=${8}>${([shown, named]) => shown.data.length ? html`<ul class="lines">${shown.data.map((event) => html`<${EventLine} key=${event.id} event=${event} named=${named} />`)}</ul>
      <${More} next=${shown.next} load=${() => rows.more(shown, page.reload)} />` : html`<${Empty} icon="scroll-text" title=${t("Nothing has happened yet")} />`}<//>
  <//>`;
}
