/* What acts on many devices at once. */

import { html } from "../core/html.js";
import { t } from "../core/i18n.js";
import { place } from "../core/router.js";
import { PageHead, Tabs } from "../ui/basic_components.js";
import { BulkRegistration } from "./fleet/bulk_registration.js";
import { ProvisioningCodes } from "./fleet/provisioning_codes.js";
import { Groups } from "./fleet/groups.js";

const sections = () => [["add", t("Add many"), BulkRegistration], ["groups", t("Groups"), Groups], ["codes", t("Provisioning"), ProvisioningCodes]];

export function Fleet() {
  const all = sections();
  const chosen = all.find(([name]) => name === place.value.rest[0]) ?? all[0];
  const Section = chosen[2];
  return html`<${PageHead} title=${t("Fleet")} />
    <${Tabs} label=${t("Sections of the fleet")} base="fleet" sections=${all} chosen=${chosen[0]} />
    <${Section} />`;
}
