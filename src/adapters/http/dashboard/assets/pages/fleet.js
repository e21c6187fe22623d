/* What acts on many devices at once. */

import { html } from "../core/html.js";
import { t } from "../core/i18n.js";
import { place } from "../core/router.js";
import { PageHead } from "../ui/base.js";
import { BulkRegistration } from "./fleet/bulk.js";
import { ProvisioningCodes } from "./fleet/codes.js";
import { Groups } from "./fleet/groups.js";

const sections = () => [["add", t("Add many devices"), BulkRegistration], ["groups", t("Groups"), Groups], ["codes", t("Provisioning"), ProvisioningCodes]];

export function Fleet() {
  const all = sections();
  const chosen = all.find(([name]) => name === place.value.rest[0]) ?? all[0];
  const Section = chosen[2];
  return html`<${PageHead} title=${t("Fleet")} />
    <nav class="tabs" aria-label=${t("Sections of the fleet")}>${all.map(([name, label]) => html`<a href=${`#/fleet/${name}`} aria-current=${name === chosen[0] ? "page" : null}>${label}</a>`)}</nav>
    <${Section} />`;
}
