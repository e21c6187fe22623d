/* What somebody else may have left behind: keys, codes, service sessions and invitations made since a chosen time, and their end. */

import { call, get } from "../core/api.js";
import { html } from "../core/html.js";
import { n, t } from "../core/i18n.js";
import { forgetNames } from "../core/signed_in_user.js";
import { Button, Card } from "../ui/basic_components.js";
import { ask } from "../ui/dialog.js";
import { tell } from "../ui/toasts.js";

const HOUR_MS = 3_600_000;
const kinds = () => [["/keys", "keyId", t("API key")], ["/provisioning-codes", "codeId", t("provisioning code")], ["/service-sessions", "sessionId", t("service session")], ["/invitations", "invitationId", t("invitation")]];

export function MadeLately() {
  return html`<${Card} title=${t("Made lately")} actions=${html`<${Button} act=${offerToEnd}>${t("Look and end")}<//>`}>
    <p class="dim">${t("If somebody else was signed in as you: end the keys, codes, service sessions and invitations of this account that were made since then.")}</p>
  <//>`;
}

export async function offerToEnd() {
  const chosen = await ask({
    title: t("What was made lately?"),
    fields: [{ name: "hours", label: t("Made in the last"), value: "24", options: [["1", n("{count} hour", "{count} hours", 1)], ["24", n("{count} day", "{count} days", 1)], ["168", n("{count} day", "{count} days", 7)], ["720", n("{count} day", "{count} days", 30)]] }],
    action: t("Look"),
    send: ({ hours }) => listMadeSince(Date.now() - Number(hours) * HOUR_MS),
  });
  if (!chosen) return;
  if (!chosen.length) return tell(t("Nothing was made in that time."));
  const ended = await ask({
    title: t("End what is not yours"),
    intro: t("What is ended is refused at once; what depends on it goes with it."),
    fields: [{ name: "paths", label: t("End"), type: "many", options: chosen }],
    action: t("End"),
    send: async ({ paths = [] }) => {
      for (const path of paths) await call("DELETE", path);
      return paths;
    },
  });
  if (!ended) return;
  forgetNames();
  tell(n("{count} was ended.", "{count} were ended.", ended.length));
}

/* Pairs of the path that ends one and what it is, the newest first. */
async function listMadeSince(sinceMs) {
  const lists = await Promise.all(kinds().map(async ([path, id, kind]) => (await get(path)).map((each) => ({ at: Date.parse(each.createdAt), path: `${path}/${each[id]}`, label: `${kind} ${each.name}` }))));
  return lists.flat().filter(({ at }) => at >= sinceMs).sort((one, other) => other.at - one.at).map(({ path, label }) => [path, label]);
}
