/* Invitations on the team page: invite, and those that nobody has used yet. */

import { call, get } from "../../core/api.js";
import { html } from "../../core/html.js";
import { t, word } from "../../core/i18n.js";
import { ofKind, useLoad } from "../../core/live_data_hooks.js";
import { isOwner } from "../../core/signed_in_user.js";
import { Badge, Button, Card, Loaded, Time } from "../../ui/basic_components.js";
import { ask, confirmed, reveal } from "../../ui/dialog.js";
import { tell } from "../../ui/toasts.js";
import { withStepUp } from "../../ui/step_up.js";

const STATES = { PENDING: "wait", EXPIRED: "off", VOID: "bad" };

export async function invite(roles) {
  const sent = await ask({
    title: t("Invite a person"),
    intro: t("The invited person opens a link and chooses a password. You never get to know it."),
    fields: [
      { name: "name", label: t("Name"), required: true },
      { name: "email", label: t("Email"), type: "email", required: true },
      { name: "role", label: t("Role"), options: roles, value: "Member" },
    ],
    action: t("Invite"),
    send: (values) => withStepUp(() => call("POST", "/invitations", values)),
  });
  if (sent) await show(sent);
}

/* Without a mail server the service gives the link to the one who invites. */
function show({ email, link }) {
  if (!link) return tell(t("The invitation was mailed to {email}.", { email }));
  return reveal(t("Pass this link on"), t("Send it to {email} yourself: it was not mailed, and is shown only now. It works once, for 7 days, for whoever has it.", { email }), [[t("Link"), link]]);
}

export function Invitations() {
  const invitations = useLoad((signal) => get("/invitations", signal), [], ofKind("member_"));
  if (invitations.data?.length === 0) return null;
  return html`<${Card} title=${t("Invitations")}>
    <${Loaded} of=${invitations}>${(all) => html`<ul class="lines">${all.map((one) => html`<${Line} key=${one.invitationId} invitation=${one} reload=${invitations.reload} />`)}</ul>`}<//>
  <//>`;
}

function Line({ invitation, reload }) {
  const { email, name, role, status, expiresAt } = invitation;
  const path = `/invitations/${invitation.invitationId}`;
  const again = async () => {
    await show(await withStepUp(() => call("POST", `${path}/resend`)));
    await reload();
  };
  const revoke = () => confirmed(t("Withdraw the invitation of {name}?", { name }), t("Its link no longer works."), t("Withdraw"), () => call("DELETE", path)).then((done) => done && reload());
  const state = { PENDING: t("waits"), EXPIRED: t("expired"), VOID: t("void: whoever sent it may not give this role any more") }[status];
  const may = role !== "Owner" || isOwner();
  return html`<li class="entry" aria-label=${name}><div class="grow"><strong>${name}</strong> <${Badge} kind="info" icon="circle-user">${word(role)}<//> <${Badge} kind=${STATES[status]}>${state}<//><small>${email} · ${t("ends")} <${Time} at=${expiresAt} /></small></div>
    ${may ? html`<div class="actions"><${Button} small icon="mail" act=${again}>${t("Send again")}<//><${Button} small kind="quiet danger" icon="trash" label=${t("Withdraw the invitation of {name}", { name })} act=${revoke} /></div>` : null}</li>`;
}
