/* The credentials of devices that were just added: in this tab's memory until the person leaves the page. Later the service shows them
 * only for the person's password. */

import { call } from "../../core/api.js";
import { t } from "../../core/i18n.js";
import { ask } from "../../ui/dialog.js";
import { withStepUp } from "../../ui/step_up.js";

const kept = new Map();

export const keepCredentials = (deviceId, credentials) => kept.set(deviceId, credentials);
export const keptCredentials = (deviceId) => kept.get(deviceId) ?? null;
export const forgetCredentials = () => kept.clear();

/* Asks for the person's password. Resolves to the credentials, or to undefined if the person closes the dialog. */
export function askForCredentials(path) {
  const fields = [{ name: "password", label: t("Your password"), type: "password", required: true }];
  return ask({ title: t("Show the credentials"), intro: t("This is recorded in the device’s history."), fields, action: t("Show"), send: (values) => withStepUp(() => call("POST", `${path}/credentials/reveal`, values)) });
}
