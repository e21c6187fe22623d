import { signOut } from "../core/api.js";
import { html } from "../core/html.js";
import { t } from "../core/i18n.js";
import { Button } from "./basic_components.js";

export const SignOut = () => html`<${Button} act=${signOut} icon="log-out">${t("Sign out")}<//>`;
