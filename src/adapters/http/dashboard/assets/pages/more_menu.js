/* On the phone: what the tab bar has no room for. */

import { html } from "../core/html.js";
import { t } from "../core/i18n.js";
import { me } from "../core/signed_in_user.js";
import { PageHead } from "../ui/basic_components.js";
import { Icon } from "../ui/icons.js";
import { SignOut } from "../ui/sign_out.js";

export function More() {
  const line = (name, icon, label, sub) => html`<a class="line-link" href=${`#/${name}`}><${Icon} name=${icon} /><span>${label}${sub ? html`<small>${sub}</small>` : null}</span><${Icon} name="chevron-right" size=${18} /></a>`;
  return html`<${PageHead} title=${t("More")} />
    <div class="card lines">
      ${line("account", "circle-user", me.value.name, me.value.email)}
      ${line("fleet", "list-checks", t("Fleet"))}${line("keys", "key-round", t("API keys"))}${line("webhooks", "webhook", t("Webhooks"))}${line("team", "users", t("Team"))}${line("network", "smartphone", t("Network"), t("Phones and devices"))}
      <a class="line-link" href="/docs"><${Icon} name="scroll-text" /><span>${t("The API")}</span><${Icon} name="chevron-right" size=${18} /></a>
    </div>
    <${SignOut} />`;
}
