/* Short messages over the page. An error stays longer, and each can be dismissed. */

import { html, signal } from "../core/html.js";
import { errorText, t } from "../core/i18n.js";
import { Icon } from "./icons.js";

const notices = signal([]);
let last = 0;

export function tell(news, kind = news instanceof Error ? "bad" : "good", action = null) {
  if (news?.name === "AbortError") return;
  const notice = { id: (last += 1), text: news instanceof Error ? errorText(news) : news, kind, action };
  notices.value = [...notices.value.slice(-3), notice];
  setTimeout(() => dismiss(notice.id), kind === "bad" ? 15_000 : 6_000);
}

function dismiss(id) {
  notices.value = notices.value.filter((each) => each.id !== id);
}

const ICONS = { good: "circle-check", bad: "circle-x", warn: "triangle-alert", info: "bell-ring" };

export function Notices() {
  return html`<div id="notices" role="status" aria-live="polite">
    ${notices.value.map(({ id, text, kind, action }) => html`<p key=${id} class=${`notice ${kind}`}>
      <${Icon} name=${ICONS[kind] ?? "info"} /><span>${action ? html`<a href=${action} onClick=${() => dismiss(id)}>${text}</a>` : text}</span>
      <button type="button" class="button quiet bare" aria-label=${t("Dismiss")} onClick=${() => dismiss(id)}><${Icon} name="x" size=${18} /></button>
    </p>`)}
  </div>`;
}
