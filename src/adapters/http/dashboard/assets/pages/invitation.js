/* The page behind an invitation's link: the invited person chooses a password and is signed in. The token is behind the `#`, so that it is in no log. */

import { acceptInvitation, previewInvitation, signIn } from "../core/api.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { errorText, t, word } from "../core/i18n.js";
import { go } from "../core/router.js";
import { Button, Skeleton } from "../ui/basic_components.js";

export function Invitation({ token, start }) {
  const [invitation, setInvitation] = useState(null);
  const [said, setSaid] = useState("");
  const form = useRef(null);
  useEffect(() => {
    previewInvitation(token).then(setInvitation, (error) => setSaid(errorText(error)));
  }, [token]);
  const submit = async (event) => {
    event.preventDefault();
    const { name, password } = form.current.elements;
    setSaid("");
    try {
      const { email } = await acceptInvitation(token, name.value, password.value);
      await signIn(email, password.value);
    } catch (error) {
      return setSaid(errorText(error));
    }
    go("devices");
    await start();
  };
  const problem = said ? html`<div class="problem" role="alert">${said}</div>` : null;
  const head = html`<img src="/dashboard/icon.svg" alt="" width="56" height="56" /><h1>${t("Your invitation")}</h1>`;
  if (!invitation) return html`<main class="narrow"><div class="sign-in">${head}${problem ?? html`<${Skeleton} />`}<a href="#/devices">${t("Sign in")}</a></div></main>`;
  return html`<main class="narrow"><form ref=${form} class="sign-in" onSubmit=${submit}>
    ${head}
    <p>${t("You are invited to “{account}” as {role}.", { account: invitation.accountName, role: word(invitation.role) })}</p>
    <div class="field"><label for="email">${t("Email")}</label><input id="email" type="email" autocomplete="username" readonly value=${invitation.email} /></div>
    <div class="field"><label for="name">${t("Name")}</label><input id="name" name="name" autocomplete="name" maxlength="64" required value=${invitation.name} /></div>
    <div class="field"><label for="password">${t("Your new password")}</label><input id="password" name="password" type="password" autocomplete="new-password" minlength="8" maxlength="256" aria-describedby="password-hint" required autofocus /><small id="password-hint">${t("8 to 256 characters")}. ${t("Nobody else gets to know it.")}</small></div>
    ${problem}
    <${Button} type="submit" kind="main wide">${t("Accept and sign in")}<//>
  </form></main>`;
}
