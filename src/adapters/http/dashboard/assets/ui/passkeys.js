/* The passkeys of the signed-in person: listed with their last use, added, removed. */

import { call, get } from "../core/api.js";
import { html } from "../core/html.js";
import { t } from "../core/i18n.js";
import { ofKind, useLoad } from "../core/live_data_hooks.js";
import { canUsePasskeys, createPasskey } from "../core/passkeys.js";
import { programOf } from "../core/user_agent.js";
import { Badge, Button, Card, Loaded, Time } from "./basic_components.js";
import { ask, confirmed } from "./dialog.js";
import { tell } from "./toasts.js";
import { showRecoveryCodes } from "./recovery_codes.js";
import { withStepUp } from "./step_up.js";

export function Passkeys({ changed }) {
  const loaded = useLoad((signal) => get("/auth/passkeys", signal), [], ofKind("passkey_"));
  const reload = () => Promise.all([loaded.reload(), changed()]);
  const add = () => addPasskey().then((added) => added && reload());
  return html`<${Card} title=${t("Passkeys")} actions=${html`<${AddButton} act=${add} />`}>
    <p class="dim">${t("A passkey signs you in without a password and confirms that it is you, by the finger, face or PIN of your device.")}</p>
    <${Loaded} of=${loaded}>${(all) => (all.length ? html`<ul class="lines after">${all.map((each) => html`<${Passkey} key=${each.passkeyId} passkey=${each} reload=${reload} />`)}</ul>` : null)}<//>
  <//>`;
}

export const AddButton = ({ act }) => (canUsePasskeys() ? html`<${Button} icon="plus" act=${act}>${t("Add a passkey")}<//>` : html`<${Badge} kind="off">${t("needs TLS")}<//>`);

function Passkey({ passkey: { passkeyId, name, synced, createdAt, lastUsedAt }, reload }) {
  const remove = async () => {
    const intro = t("It no longer signs you in. Also delete it in the password manager or on the device that keeps it.");
    const done = await confirmed(t("Remove the passkey “{name}”?", { name }), intro, t("Remove"), () => withStepUp(() => call("DELETE", `/auth/passkeys/${passkeyId}`)));
    if (done) await reload();
  };
  return html`<li class="entry"><div class="grow"><strong>${name}</strong> ${synced ? html`<${Badge} kind="info">${t("synced")}<//>` : null}
      <small>${t("added")} <${Time} at=${createdAt} /> · ${t("last used")} <${Time} at=${lastUsedAt} none=${t("never")} /></small></div>
    <${Button} small kind="danger" act=${remove}>${t("Remove")}<//></li>`;
}

/* Resolves to whether one was added; shows the recovery codes that come with the first second factor. */
export async function addPasskey() {
  const { publicKey } = await withStepUp(() => call("POST", "/auth/passkeys/options"));
  const passkey = await createPasskey(publicKey);
  const fields = [{ name: "name", label: t("Name"), value: programOf(navigator.userAgent), required: true, maxlength: 64, hint: t("So that you know it in the list") }];
  const added = await ask({ title: t("Name the passkey"), fields, action: t("Add"), send: ({ name }) => call("POST", "/auth/passkeys", { name, passkey }) });
  if (!added) return false;
  if (added.recoveryCodes.length) await showRecoveryCodes(added.recoveryCodes);
  tell(t("The passkey was added."));
  return true;
}
