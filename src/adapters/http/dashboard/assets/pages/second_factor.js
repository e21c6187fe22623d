/* The second factors of the signed-in person: passkeys, an authenticator app, recovery codes. Also the page for a person who must have one and has none. */

import { call, get } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { n, t } from "../core/i18n.js";
import { ofKind, useLoad } from "../core/live_data_hooks.js";
import { me } from "../core/signed_in_user.js";
import { Badge, Button, Card, LinkButton, Loaded, PageHead } from "../ui/basic_components.js";
import { confirmed } from "../ui/dialog.js";
import { Field } from "../ui/form_fields.js";
import { tell } from "../ui/toasts.js";
import { addPasskey, AddButton, Passkeys } from "../ui/passkeys.js";
import { QrCode } from "../ui/qr_code.js";
import { showRecoveryCodes } from "../ui/recovery_codes.js";
import { SignOut } from "../ui/sign_out.js";
import { withStepUp } from "../ui/step_up.js";

const useStatus = () => useLoad((signal) => get("/auth/second-factor", signal), [], ofKind("second_factor_", "recovery_codes_", "passkey_"));

/* On the page of the account. */
export function SecondFactorCard() {
  const status = useStatus();
  return html`<${Card} title=${t("Second factor")} actions=${html`<${LinkButton} href="#/second-factor" icon="shield-check">${status.data?.enabled === false ? t("Set up") : t("Change")}<//>`}>
    <${Loaded} of=${status}>${(each) => html`<p class="line"><${State} on=${each.enabled} warn=${each.required} /><span class="dim">${t("A passkey, or a code beside the password, when you sign in and approve.")}</span></p>`}<//>
  <//>`;
}

const State = ({ on, warn }) => (on ? html`<${Badge} kind="good">${t("on")}<//>` : html`<${Badge} kind=${warn ? "warn" : "off"}>${t("off")}<//>`);

export function SecondFactor() {
  const status = useStatus();
  return html`<${PageHead} title=${t("Second factor")} actions=${html`<${LinkButton} href="#/account" icon="chevron-left">${me.value.name}<//>`} />
    <${Loaded} of=${status}>${(each) => html`<${Passkeys} changed=${status.reload} /><${AuthenticatorApp} status=${each} reload=${status.reload} />${each.enabled ? html`<${RecoveryCodes} left=${each.recoveryCodesLeft} reload=${status.reload} />` : null}`}<//>`;
}

/* Instead of every other page, for a person whose role needs a second factor. `start()` goes on once there is one. */
export function RequiredSecondFactor({ start }) {
  const passkey = () => addPasskey().then((added) => added && start());
  return html`<main class="narrow wide">
    <header class="page-head"><h1>${t("Set up a second factor")}</h1><${SignOut} /></header>
    <p>${t("Your role needs one here. Until it is set up, you see nothing else.")}</p>
    <section class="card"><p class="dim">${t("A passkey: confirm with the finger, face or PIN of this device.")}</p><p class="actions after"><${AddButton} act=${passkey} /></p></section>
    <section class="card"><${SetUp} done=${start} /></section>
  </main>`;
}

function AuthenticatorApp({ status, reload }) {
  const { totp, required, passkeys } = status;
  const remove = async () => {
    const done = await confirmed(t("Turn the authenticator app off?"), passkeys ? t("Its codes no longer work. Your passkeys stay.") : t("Then your password alone lets you in. The app's codes and the recovery codes no longer work."), t("Turn off"), () => withStepUp(() => call("DELETE", "/auth/second-factor/totp")));
    if (done) await reload();
  };
  if (!totp) return html`<${Card} title=${t("Authenticator app")} actions=${html`<${State} on=${false} warn=${required && !passkeys} />`}><${SetUp} done=${reload} /><//>`;
  return html`<${Card} title=${t("Authenticator app")} actions=${html`<${State} on />`}>
    <p class="dim">${t("The sign-in asks for its code after your password, and so does an approval when the last code is older than 15 minutes.")}</p>
    <p class="actions after">${required && !passkeys ? html`<span class="dim">${t("Your role needs a second factor here, so it cannot be turned off.")}</span>` : html`<${Button} kind="danger" act=${remove}>${t("Turn off")}<//>`}</p>
  <//>`;
}

function RecoveryCodes({ left, reload }) {
  const renew = async () => {
    const { recoveryCodes } = await withStepUp(() => call("POST", "/auth/second-factor/recovery-codes"));
    await showRecoveryCodes(recoveryCodes);
    await reload();
  };
  return html`<${Card} title=${t("Recovery codes")} actions=${html`<${Badge} kind=${left > 3 ? "good" : left ? "warn" : "bad"}>${n("{count} left", "{count} left", left)}<//>`}>
    <p class="dim">${t("Each lets you in once without the app, for a lost phone. New codes void all old ones.")}</p>
    <p class="actions after"><${Button} act=${renew}>${t("Make new codes")}<//></p>
  <//>`;
}

/* Scan, then confirm with the first code. Nothing changes before. */
function SetUp({ done }) {
  const [setup, setSetup] = useState(null);
  const begin = async () => setSetup(await withStepUp(() => call("POST", "/auth/second-factor/totp")));
  if (setup) return html`<${Confirm} setup=${setup} done=${done} />`;
  return html`<p class="dim">${t("You need an authenticator app, such as Aegis, Google Authenticator, or the one of your password manager. All your other sessions end.")}</p>
    <p class="actions after"><${Button} kind="main" icon="shield-check" act=${begin}>${t("Set up an authenticator app")}<//></p>`;
}

function Confirm({ setup, done }) {
  const [code, setCode] = useState("");
  const [fault, setFault] = useState("");
  const confirm = async () => {
    setFault("");
    try {
      const { recoveryCodes } = await withStepUp(() => call("POST", "/auth/second-factor/totp/confirm", { code }));
      if (recoveryCodes.length) await showRecoveryCodes(recoveryCodes);
      tell(t("The second factor is on."));
      await done();
    } catch (error) {
      if (error.details?.[0]?.field !== "code") throw error;
      setFault(t("This code is wrong. Enter the one that the app shows now, and check the clock of its device."));
    }
  };
  const submit = (event) => {
    event.preventDefault();
    return confirm().catch(tell);
  };
  return html`<form class="set-up" onSubmit=${submit}>
    <ol>
      <li><p>${t("Scan this with the app.")} <a href=${setup.otpauthUri}>${t("On this phone, open the app instead.")}</a></p><${QrCode} rows=${setup.qrRows} label=${t("QR code for the authenticator app")} /></li>
      <li><p>${t("If you cannot scan it, type this key into the app:")}</p><p><code class="typed">${setup.secret.match(/.{1,4}/g).join(" ")}</code></p></li>
      <li><p>${t("Enter the code that the app shows now.")}</p>
        <${Field} id="first-code" label=${t("Code")} fault=${fault} value=${code} onChange=${setCode} required autocomplete="one-time-code" inputmode="numeric" maxlength="16" /></li>
    </ol>
    <${Button} type="submit" kind="main wide">${t("Turn on")}<//>
  </form>`;
}
