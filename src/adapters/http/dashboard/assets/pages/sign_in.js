/* Signing in: email and password, then a code for a person with a second factor. */

import { completeSignIn, requestUnlockLink, signIn } from "../core/api.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { errorText, t } from "../core/i18n.js";
import { Button } from "../ui/base.js";

export function SignIn({ problem, start }) {
  const [challenge, setChallenge] = useState(null);
  const [said, setSaid] = useState("");
  const begin = (text = "") => {
    setSaid(text);
    setChallenge(null);
  };
  const step = challenge ? html`<${CodeStep} challenge=${challenge} begin=${begin} start=${start} />` : html`<${PasswordStep} problem=${said || problem} challenged=${setChallenge} start=${start} />`;
  return html`<main class="narrow">
    ${step}
    <p class="dim">${t("Programs use API keys.")} <a href="/docs">${t("The API")}</a></p>
  </main>`;
}

function PasswordStep({ problem, challenged, start }) {
  const [said, setSaid] = useState("");
  const [throttled, setThrottled] = useState(false);
  const form = useRef(null);
  const submit = async (event) => {
    event.preventDefault();
    const { email, password } = form.current.elements;
    setSaid("");
    try {
      const challenge = await signIn(email.value, password.value);
      await (challenge ? challenged(challenge) : start());
    } catch (error) {
      setSaid(errorText(error));
      setThrottled(error.code === "LOGIN_THROTTLED");
      password.select();
    }
  };
  const mailLink = async () => {
    await requestUnlockLink(form.current.elements.email.value);
    setThrottled(false);
    setSaid(t("If there is an account with this email, a link is on its way. Open it in this browser, then sign in as usual."));
  };
  return html`<form ref=${form} class="sign-in" onSubmit=${submit}>
    <${Head} />
    <div class="field"><label for="email">${t("Email")}</label><input id="email" name="email" type="email" autocomplete="username" required autofocus /></div>
    <div class="field"><label for="password">${t("Password")}</label><input id="password" name="password" type="password" autocomplete="current-password" required /></div>
    <${Problem} text=${said || problem} />
    ${throttled ? html`<${Button} icon="mail" kind="wide" act=${mailLink}>${t("Have a link mailed that unlocks this browser")}<//>` : null}
    <${Button} type="submit" kind="main wide">${t("Sign in")}<//>
  </form>`;
}

function CodeStep({ challenge, begin, start }) {
  const [said, setSaid] = useState("");
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    setSaid("");
    try {
      await completeSignIn(challenge, field.current.value);
    } catch (error) {
      if (error.code === "CHALLENGE_EXPIRED") return begin(t("The sign-in took too long. Begin again."));
      setSaid(errorText(error));
      return field.current.select();
    }
    await start();
  };
  return html`<form class="sign-in" onSubmit=${submit}>
    <${Head} />
    <div class="field"><label for="code">${t("Code")}</label><input id="code" ref=${field} autocomplete="one-time-code" autocapitalize="off" spellcheck="false" maxlength="32" aria-describedby="code-hint" required /><small id="code-hint">${t("Of your authenticator app, or a recovery code")}</small></div>
    <${Problem} text=${said} />
    <${Button} type="submit" kind="main wide">${t("Sign in")}<//>
    <${Button} kind="wide" act=${() => begin()}>${t("Cancel")}<//>
  </form>`;
}

const Head = () => html`<img src="/dashboard/icon.svg" alt="" width="56" height="56" /><h1>Latchboard</h1>`;
const Problem = ({ text }) => (text ? html`<div class="problem" role="alert">${text}</div>` : null);
