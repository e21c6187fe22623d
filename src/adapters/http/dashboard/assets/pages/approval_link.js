/*
 * The page behind an approval link: the whole request and two buttons, for the person whom the link was sent to, without a sign-in.
 * Opening it decides nothing. The token is behind the `#`, so that no server and no log gets it.
 */

import { decideByLink, decisionQuestion, factorOf, previewDecision } from "../core/api.js";
import { labelOf, nameLabel } from "../core/channels.js";
import { near } from "../core/format.js";
import { html, useEffect, useState } from "../core/html.js";
import { errorText, t, word } from "../core/i18n.js";
import { canUsePasskeys, usePasskey } from "../core/passkeys.js";
import { Badge, Button, Facts, Skeleton, Time } from "../ui/basic_components.js";
import { Field } from "../ui/form_fields.js";
import { KINDS, paramFacts } from "./approvals.js";

export function Decide({ token }) {
  const [linked, setLinked] = useState(null);
  const [said, setSaid] = useState("");
  const load = () => previewDecision(token).then(setLinked, (error) => setSaid(textOf(error)));
  useEffect(load, [token]);
  const problem = said ? html`<div class="problem" role="alert">${said}</div>` : null;
  if (!linked) return html`<${Frame} title=${t("A request for approval")}>${problem ?? html`<${Skeleton} />`}<//>`;
  const { approval, deviceName, channelName } = linked;
  const onChannel = channelName ? nameLabel(channelName, approval.channel) : labelOf([], approval.channel);
  return html`<${Frame} title=${[approval.cmd, onChannel, deviceName].filter(Boolean).join(" · ")}>
    <${Facts} of=${[...paramFacts(approval.params), [t("Asked by"), approval.requestedBy.name], [t("Reason"), approval.reason, true], [t("Asked"), html`<${Time} at=${approval.createdAt} />`], [t("Expires"), near(approval.expiresAt)]]} />
    ${approval.status === "PENDING" ? html`<${Form} token=${token} linked=${linked} problem=${problem} say=${setSaid} reload=${load} />` : html`<${Over} approval=${approval} />`}
  <//>`;
}

function Frame({ title, children }) {
  return html`<main class="narrow"><div class="sign-in decide"><img src="/dashboard/icon.svg" alt="" width="56" height="56" /><h1>${title}</h1>${children}</div><a href="#/approvals">${t("All approvals")}</a></main>`;
}

function Form({ token, linked: { decider, linkExpiresAt, secondFactors }, problem, say, reload }) {
  const [note, setNote] = useState("");
  const [code, setCode] = useState("");
  const byPasskey = secondFactors.includes("passkey") && canUsePasskeys();
  const prove = async () => {
    if (!secondFactors.length) return {};
    if (code.trim()) return factorOf(code);
    if (byPasskey) return { passkey: await usePasskey(await decisionQuestion(token)) };
    throw Object.assign(new Error(t("Enter a code of your second factor first.")), { details: [] });
  };
  const decide = async (decision) => {
    say("");
    try {
      await decideByLink(token, decision, { ...(note.trim() && { note: note.trim().replace(/\s+/g, " ") }), ...(await prove()) });
    } catch (error) {
      say(textOf(error));
      if (error.code !== "ALREADY_DECIDED") return;
    }
    await reload();
  };
  const hint = byPasskey ? t("Of your authenticator app, or a recovery code. Leave it empty to use your passkey.") : t("Of your authenticator app, or a recovery code");
  return html`
    <${Field} id="note" type="textarea" rows="2" class="prose" label=${t("Why (optional)")} hint=${t("Shown to the person who asked")} maxlength="280" value=${note} onChange=${setNote} />
    ${secondFactors.length ? html`<${Field} id="code" label=${t("Code")} hint=${hint} autocomplete="one-time-code" value=${code} onChange=${setCode} />` : null}
    ${problem}
    <div class="request-foot"><${Button} kind="danger" icon="x" act=${() => decide("DENY")}>${t("Deny")}<//><${Button} kind="main" icon="check" act=${() => decide("APPROVE")}>${t("Approve")}<//></div>
    <p class="dim">${t("You decide as {name}. The link is valid until {when}, and for one decision.", { name: decider, when: near(linkExpiresAt) })}</p>`;
}

function Over({ approval: { status, note } }) {
  const text = status === "APPROVED" ? t("The command was sent.") : ["DENIED", "WITHDRAWN"].includes(status) ? t("The command is not sent.") : t("Nobody decided in time.");
  return html`<p role="status"><${Badge} kind=${KINDS[status]}>${word(status)}<//> ${text}</p>${note ? html`<blockquote>${note}</blockquote>` : null}`;
}

const textOf = (error) => (error.code === "LINK_INVALID" ? t("This link is wrong or has expired. Sign in to decide: the request may still wait.") : errorText(error));
