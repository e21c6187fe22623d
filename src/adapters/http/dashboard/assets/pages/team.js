/* The members of the account, on a page with its invitations and projects. */

import { call, get } from "../core/api.js";
import { html } from "../core/html.js";
import { t, word } from "../core/i18n.js";
import { ofKind, useLoad } from "../core/live_data_hooks.js";
import { forgetNames, isAdmin, isOwner, me } from "../core/signed_in_user.js";
import { Badge, Button, Card, Loaded, PageHead, Time } from "../ui/basic_components.js";
import { ask, confirmedByName } from "../ui/dialog.js";
import { Invitations, invite } from "./team/invitations.js";
import { Projects } from "./team/projects.js";
import { withStepUp } from "../ui/step_up.js";

const ROLES = ["Owner", "Admin", "Member", "Viewer"];
const roles = () => ROLES.filter((role) => role !== "Owner" || isOwner()).map((role) => [role, word(role)]);

export function Team() {
  const members = useLoad((signal) => get("/members", signal), [], ofKind("member_"));
  const admin = isAdmin();
  return html`<${PageHead} title=${t("Team")} />
    <${Card} title=${t("People")} actions=${admin ? html`<${Button} kind="main" icon="mail" act=${() => invite(roles())}>${t("Invite a person")}<//><${Button} icon="plus" act=${() => add(members.reload)}>${t("Add a member")}<//>` : null}>
      <${Loaded} of=${members}>${(all) => html`<ul class="lines">${all.map((member) => html`<${Person} key=${member.membershipId} member=${member} reload=${members.reload} />`)}</ul>`}<//>
    <//>
    ${admin ? html`<${Invitations} />` : null}
    <${Projects} />`;
}

function Person({ member, reload }) {
  const path = `/members/${member.membershipId}`;
  const may = isAdmin() && (member.role !== "Owner" || isOwner());
  const change = async () => {
    const fields = [{ name: "name", label: t("Name"), value: member.name, required: true }, { name: "role", label: t("Role"), options: roles(), value: member.role }];
    if (await ask({ title: member.email, fields, action: t("Save"), send: (values) => withStepUp(() => call("PATCH", path, values)) })) await changed(reload);
  };
  const gone = () => confirmedByName(t("Remove {name}?", { name: member.name }), t("They are signed out, and their grants end."), member.name, t("Remove"), () => call("DELETE", path)).then((done) => done && changed(reload));
  return html`<li class="entry" aria-label=${member.name}><div class="grow"><strong>${member.name}</strong> <${Badge} kind="info" icon="circle-user">${word(member.role)}<//>${member.userId === me.value.userId ? html` <small class="inline">${t("you")}</small>` : null}<small>${member.email} · ${t("joined")} <${Time} at=${member.createdAt} /></small></div>
    ${may ? html`<div class="actions"><${Button} small icon="pencil" act=${change}>${t("Change")}<//><${Button} small kind="quiet danger" icon="trash" label=${t("Remove {name}", { name: member.name })} act=${gone} /></div>` : null}</li>`;
}

async function changed(reload) {
  forgetNames();
  await reload();
}

async function add(reload) {
  const made = await ask({
    title: t("Add a member"),
    fields: [
      { name: "name", label: t("Name"), required: true },
      { name: "email", label: t("Email"), type: "email", required: true },
      { name: "role", label: t("Role"), options: roles(), value: "Member" },
      { name: "password", label: t("First password"), type: "password", required: true, hint: t("8 characters or more; they change it after signing in.") },
    ],
    action: t("Add"),
    send: (values) => withStepUp(() => call("POST", "/members", values)),
  });
  if (made) await changed(reload);
}
