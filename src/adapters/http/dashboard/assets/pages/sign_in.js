/* Signing in. */

import { requestUnlockLink, signIn } from "../core/api.js";
import { html, useRef, useState } from "../core/html.js";
import { errorText, t } from "../core/i18n.js";
import { Button } from "../ui/base.js";

export function SignIn({ problem, start }) {
  const [said, setSaid] = useState("");
  const [throttled, setThrottled] = useState(false);
  const form = useRef(null);
  const submit = async (event) => {
    event.preventDefault();
    const { email, password } = form.current.elements;
    setSaid("");
    try {
      await signIn(email.value, password.value);
    } catch (error) {
      setSaid(errorText(error));
      setThrottled(error.code === "LOGIN_THROTTLED");
      password.select();
      return;
    }
    await start().catch((error) => setSaid(errorText(error)));
  };
  const mailLink = async () => {
    await requestUnlockLink(form.current.elements.email.value);
    setThrottled(false);
    setSaid(t("If there is an account with this email, a link is on its way. Open it in this browser, then sign in as usual."));
  };
  return html`<main class="narrow">
    <form ref=${form} class="sign-in" onSubmit=${submit}>
      <img src="/dashboard/icon.svg" alt="" width="56" height="56" />
      <h1>Latchboard</h1>
      <div class="field"><label for="email">${t("Email")}</label><input id="email" name="email" type="email" autocomplete="username" required autofocus /></div>
      <div class="field"><label for="password">${t("Password")}</label><input id="password" name="password" type="password" autocomplete="current-password" required /></div>
      ${said || problem ? html`<div class="problem" role="alert">${said || problem}</div>` : null}
      ${throttled ? html`<${Button} icon="mail" kind="wide" act=${mailLink}>${t("Have a link mailed that unlocks this browser")}<//>` : null}
      <${Button} type="submit" kind="main wide">${t("Sign in")}<//>
    </form>
    <p class="dim">${t("Programs use API keys.")} <a href="/docs">${t("The API")}</a></p>
  </main>`;
}
