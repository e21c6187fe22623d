/* Asks for a proof that it is the person when the service wants a recent one: a passkey, a code of the second factor, or else the password. */

import { call, factorOf, get } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { t } from "../core/i18n.js";
import { canUsePasskeys, usePasskey } from "../core/passkeys.js";
import { Button } from "./basic_components.js";
import { DialogForm, openDialog } from "./dialog.js";
import { Field } from "./form_fields.js";

/* Resolves to the result of `send()`, which is called again after the proof; throws if the person closes the dialog. */
export async function withStepUp(send) {
  try {
    return await send();
  } catch (error) {
    if (error.code !== "STEP_UP_REQUIRED") throw error;
  }
  const proved = await openDialog(Proof, { status: await get("/auth/second-factor") });
  if (!proved) throw Object.assign(new Error(t("Nothing was done, because you did not confirm that it is you.")), { details: [] });
  return send();
}

function Proof({ status: { enabled, passkeys }, done }) {
  const [typed, setTyped] = useState("");
  const confirm = (proof) => call("POST", "/auth/step-up", proof);
  const byPasskey = async () => {
    const { publicKey } = await call("POST", "/auth/step-up/passkey-options");
    done(await confirm({ passkey: await usePasskey(publicKey) }));
  };
  const shared = { id: "field-proof", value: typed, onChange: setTyped, required: true };
  return html`<${DialogForm} title=${t("Confirm that it is you")} action=${t("Confirm")} done=${done} send=${() => confirm(enabled ? factorOf(typed) : { password: typed })}>
    ${passkeys && canUsePasskeys() ? html`<p><${Button} kind="wide" icon="key-round" act=${byPasskey}>${t("Use a passkey")}<//></p>` : null}
    ${enabled ? html`<${Field} ...${shared} label=${t("Code")} hint=${t("Of your authenticator app, or a recovery code")} autocomplete="one-time-code" />` : html`<${Field} ...${shared} label=${t("Your password")} type="password" />`}
  <//>`;
}
