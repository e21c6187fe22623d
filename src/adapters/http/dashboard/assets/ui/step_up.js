/* Asks a person with a second factor for a code when the service wants a recent proof that it is the person. */

import { call, factorOf } from "../core/api.js";
import { t } from "../core/i18n.js";
import { ask } from "./dialog.js";

/* Resolves to the result of `send()`, which is called again after the proof; throws if the person closes the dialog. */
export async function withStepUp(send) {
  try {
    return await send();
  } catch (error) {
    if (error.code !== "STEP_UP_REQUIRED") throw error;
  }
  const fields = [{ name: "code", label: t("Code"), hint: t("Of your authenticator app, or a recovery code"), autocomplete: "one-time-code", required: true }];
  const proved = await ask({ title: t("Confirm that it is you"), fields, action: t("Confirm"), send: ({ code }) => call("POST", "/auth/step-up", factorOf(code)) });
  if (!proved) throw Object.assign(new Error(t("Nothing was done, because you did not confirm that it is you.")), { details: [] });
  return send();
}
