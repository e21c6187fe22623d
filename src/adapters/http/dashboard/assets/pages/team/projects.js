/* Projects on the team page. */

import { call, get } from "../../core/api.js";
import { html } from "../../core/html.js";
import { n, t } from "../../core/i18n.js";
import { ofKind, useLoad } from "../../core/live_data_hooks.js";
import { isAdmin } from "../../core/signed_in_user.js";
import { Button, Card, Loaded } from "../../ui/basic_components.js";
import { ask, confirmed } from "../../ui/dialog.js";

export function Projects() {
  const projects = useLoad((signal) => get("/projects", signal), [], ofKind("project_", "device_registered", "device_deleted"));
  return html`<${Card} title=${t("Projects")} actions=${isAdmin() ? html`<${Button} icon="plus" act=${() => askName(t("New project"), "", (values) => call("POST", "/projects", values), projects.reload)}>${t("New project")}<//>` : null}>
    <${Loaded} of=${projects}>${(all) => html`<ul class="lines">${all.map((project) => html`<${Project} key=${project.projectId} project=${project} reload=${projects.reload} />`)}</ul>`}<//>
  <//>`;
}

function Project({ project, reload }) {
  const path = `/projects/${project.projectId}`;
  const gone = () => confirmed(t("Delete “{name}”?", { name: project.name }), t("Only an empty project can be deleted."), t("Delete"), () => call("DELETE", path)).then((done) => done && reload());
  const rename = () => askName(t("Rename the project"), project.name, (values) => call("PATCH", path, values), reload);
  return html`<li class="entry" aria-label=${project.name}><div class="grow"><strong>${project.name}</strong><small><a href=${`#/devices?project=${project.projectId}`}>${n("{count} device", "{count} devices", project.deviceCount)}</a></small></div>
    ${isAdmin() ? html`<div class="actions"><${Button} small icon="pencil" act=${rename}>${t("Rename")}<//><${Button} small kind="quiet danger" icon="trash" label=${t("Delete {name}", { name: project.name })} act=${gone} /></div>` : null}</li>`;
}

async function askName(title, value, send, reload) {
  if (await ask({ title, fields: [{ name: "name", label: t("Name"), required: true, value }], action: t("Save"), send })) await reload();
}
