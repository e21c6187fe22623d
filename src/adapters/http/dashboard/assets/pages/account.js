/* The signed-in person: what is theirs on this service and in this browser. */

import { call } from "../core/api.js";
import { html } from "../core/html.js";
import { chooseLanguage, chosenLanguage, LANGUAGES, t, word } from "../core/i18n.js";
import { isAdmin, me } from "../core/session.js";
import { Button, Card, Facts, PageHead } from "../ui/base.js";
import { ask } from "../ui/dialog.js";
import { tell } from "../ui/notices.js";
import { SignOut } from "../ui/sign_out.js";

export function Account() {
  const { name, email, role, accountName, deviceCount } = me.value;
  const language = (event) => {
    chooseLanguage(event.currentTarget.value);
    location.reload();
  };
  return html`<${PageHead} title=${name} actions=${html`<${SignOut} />`} />
    <${Card} title=${t("Account")} actions=${isAdmin() ? html`<${Button} act=${password}>${t("Change the password")}<//>` : null}>
      <${Facts} of=${[[t("Email"), email], [t("Role"), word(role)], [t("Account"), accountName], [t("Devices"), deviceCount]]} />
    <//>
    <${Card} title=${t("This browser")}>
      <div class="field"><label for="language">${t("Language")}</label><select id="language" value=${chosenLanguage()} onChange=${language}><option value="">${t("as the browser")}</option>${Object.entries(LANGUAGES).map(([code, label]) => html`<option value=${code} selected=${code === chosenLanguage()}>${label}</option>`)}</select></div>
    <//>`;
}

async function password() {
  await call("POST", "/auth/password/request-otp");
  const changed = await ask({
    title: t("Change the password"),
    intro: t("You received a six-digit code by email; it is valid for ten minutes."),
    fields: [
      { name: "otp", label: t("Code"), required: true, inputmode: "numeric", autocomplete: "one-time-code" },
      { name: "newPassword", label: t("New password"), type: "password", required: true, hint: t("8 to 256 characters. All your sessions end."), autocomplete: "new-password" },
    ],
    action: t("Change"),
    send: (values) => call("POST", "/auth/change-password", values),
  });
  if (changed) tell(t("The password has been changed."));
}
