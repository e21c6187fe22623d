/* Signing in: with a passkey; or with email and password, then a passkey or a code for a person with a second factor. */

import { completeSignIn, factorOf, firstRunState, passkeyQuestion, requestUnlockLink, signIn, signInAtProvider, signInMethods, signInWithPasskey } from "../core/api.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { errorText, t } from "../core/i18n.js";
import { canUsePasskeys, usePasskey } from "../core/passkeys.js";
import { place } from "../core/router.js";
import { Button } from "../ui/basic_components.js";
import { Icon } from "../ui/icons.js";

/* `pending`: the challenge of a person whom the identity provider has confirmed. */
export function SignIn({ problem, pending, start }) {
  const [challenge, setChallenge] = useState(pending);
  const [said, setSaid] = useState("");
  const [empty, setEmpty] = useState(false);
  useEffect(() => {
    firstRunState().then((state) => setEmpty(state !== "DONE"), () => {});
  }, []);
  const begin = (text = "") => {
    setSaid(text);
    setChallenge(null);
  };
  const step = challenge ? html`<${CodeStep} challenge=${challenge} begin=${begin} start=${start} />` : html`<${PasswordStep} problem=${said || problem} challenged=${setChallenge} start=${start} />`;
  return html`<main class="narrow">
    ${empty ? html`<p class="hint" role="status"><${Icon} name="info" size=${18} /><span>${t("Nobody has a login here yet. Open the one-time link that the service printed when it started; it is also in the file first-run-link.txt of its data directory.")}</span></p>` : null}
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
  const byPasskey = () => withPasskey(setSaid, async () => signInWithPasskey(await usePasskey(await passkeyQuestion())), start);
  return html`<form ref=${form} class="sign-in" onSubmit=${submit}>
    <${Head} />
    <${Provider} failed=${setSaid} />
    <div class="field"><label for="email">${t("Email")}</label><input id="email" name="email" type="email" autocomplete="username" required autofocus /></div>
    <div class="field"><label for="password">${t("Password")}</label><input id="password" name="password" type="password" autocomplete="current-password" required /></div>
    <${Problem} text=${said || problem} />
    ${throttled ? html`<${Button} icon="mail" kind="wide" act=${mailLink}>${t("Have a link mailed that unlocks this browser")}<//>` : null}
    <${Button} type="submit" kind="main wide">${t("Sign in")}<//>
    ${canUsePasskeys() ? html`<${Button} icon="key-round" kind="wide" act=${byPasskey}>${t("Sign in with a passkey")}<//>` : null}
  </form>`;
}

/* Signs in and goes on, or says why not. */
async function withPasskey(setSaid, use, start) {
  setSaid("");
  try {
    await use();
  } catch (error) {
    return setSaid(errorText(error));
  }
  await start();
}

function CodeStep({ challenge: { challengeToken, methods }, begin, start }) {
  const [said, setSaid] = useState("");
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    setSaid("");
    try {
      await completeSignIn(challengeToken, factorOf(field.current.value));
    } catch (error) {
      if (error.code === "CHALLENGE_EXPIRED") return begin(t("The sign-in took too long. Begin again."));
      setSaid(errorText(error));
      return field.current.select();
    }
    await start();
  };
  const byPasskey = () => withPasskey(setSaid, async () => completeSignIn(challengeToken, { passkey: await usePasskey(await passkeyQuestion(challengeToken)) }), start);
  const hint = methods.includes("totp") ? t("Of your authenticator app, or a recovery code") : t("A recovery code");
  return html`<form class="sign-in" onSubmit=${submit}>
    <${Head} />
    ${methods.includes("passkey") && canUsePasskeys() ? html`<${Button} icon="key-round" kind="main wide" act=${byPasskey}>${t("Use a passkey")}<//>` : null}
    <div class="field"><label for="code">${t("Code")}</label><input id="code" ref=${field} autocomplete="one-time-code" autocapitalize="off" spellcheck="false" maxlength="32" aria-describedby="code-hint" required /><small id="code-hint">${hint}</small></div>
    <${Problem} text=${said} />
    <${Button} type="submit" kind="main wide">${t("Sign in")}<//>
    <${Button} kind="wide" act=${() => begin()}>${t("Cancel")}<//>
  </form>`;
}

/* The button of the identity provider, if the operator has named one. */
function Provider({ failed }) {
  const [name, setName] = useState(null);
  useEffect(() => {
    signInMethods().then(({ oidc }) => setName(oidc?.name ?? null), () => {});
  }, []);
  const leave = () => {
    failed("");
    return signInAtProvider([place.value.name, ...place.value.rest].join("/")).catch((error) => failed(errorText(error)));
  };
  return name && html`<${Button} kind="wide" icon="circle-user" act=${leave}>${t("Sign in with {name}", { name })}<//><p class="dim divided">${t("or with a password")}</p>`;
}

/* Why a sign-in at the identity provider failed, by the code that the service put into the address. */
export function providerProblem(code) {
  const texts = {
    LOGIN_THROTTLED: t("Too many sign-ins failed. Wait a moment."),
    PROVIDER_EMAIL_UNVERIFIED: t("The provider does not confirm that your email address is yours. Confirm it there first."),
    PROVIDER_GIVES_NO_ROLE: t("Your provider gives you no role here. Ask its administrator."),
    PROVIDER_REFUSED: t("The provider did not sign you in. Try again, or ask its administrator."),
    PROVIDER_UNAVAILABLE: t("The provider does not respond as it must. Try again later, or sign in with a password."),
    PROVIDER_USER_UNKNOWN: t("You have no user here. Ask an Owner or Admin for an invitation."),
    SIGN_IN_MISMATCH: t("This sign-in was not begun in this browser, took too long, or was used already. Begin again."),
    USER_EMAIL_UNVERIFIED: t("Your email address was never confirmed here. Sign in with your password, or ask the operator to confirm it."),
  };
  return texts[code] ?? t("The sign-in with the provider failed. Try again.");
}

const Head = () => html`<img src="/dashboard/icon.svg" alt="" width="56" height="56" /><h1>Latchboard</h1>`;
const Problem = ({ text }) => (text ? html`<div class="problem" role="alert">${text}</div>` : null);
