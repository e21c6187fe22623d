/* Members and projects of the account. */

import { call, get } from "../api.js";
import { button, fill, h, row, section, table, time } from "../dom.js";
import { ask, confirmed } from "../dialog.js";
import { isAdmin } from "../roles.js";

const ROLES = ["Owner", "Admin", "Member", "Viewer"];

export async function team(room, { me, signal, again }) {
  const [members, projects] = await Promise.all([get("/members", signal), get("/projects", signal)]);
  const roles = ROLES.filter((role) => role !== "Owner" || me.role === "Owner").map((role) => [role, role]);
  const people = members.map((member) => person(member, { me, roles, again }));
  const rooms = projects.map((project) => projectLine(project, me, again));
  const admin = isAdmin(me);
  fill(
    room,
    h("h1", null, "Team"),
    section("People", [admin ? button("Add a member", () => add(roles, again), { kind: "main" }) : null], table(["Name", "Email", "Role", "Since", ""], people, "")),
    section("Projects", [admin ? button("New project", () => name("New project", "", (values) => call("POST", "/projects", values), again)) : null], table(["Name", "Devices", "Created", ""], rooms, "")),
  );
}

function person(member, { me, roles, again }) {
  const path = `/members/${member.membershipId}`;
  const may = isAdmin(me) && (member.role !== "Owner" || me.role === "Owner");
  const change = async () => {
    const fields = [{ name: "name", label: "Name", value: member.name, required: true }, { name: "role", label: "Role", options: roles, value: member.role }];
    if (await ask({ title: member.email, fields, action: "Save", send: (values) => call("PATCH", path, values) })) await again();
  };
  const remove = () => confirmed(`Remove ${member.name}?`, "They are signed out, and their grants end.", "Remove", () => call("DELETE", path)).then((gone) => gone && again());
  const editing = may ? h("div", { class: "switches" }, button("Change", change), button("Remove", remove, { kind: "danger" })) : "";
  return row(member.name, member.email, member.role, time(member.createdAt), editing);
}

async function add(roles, again) {
  const made = await ask({
    title: "Add a member",
    fields: [
      { name: "name", label: "Name", required: true },
      { name: "email", label: "Email", type: "email", required: true },
      { name: "role", label: "Role", options: roles, value: "Member" },
      { name: "password", label: "First password", type: "password", required: true, hint: "8 characters or more; they can change it with a code sent by email." },
    ],
    action: "Add",
    send: (values) => call("POST", "/members", values),
  });
  if (made) await again();
}

function projectLine(project, me, again) {
  const path = `/projects/${project.projectId}`;
  const remove = () => confirmed(`Delete “${project.name}”?`, "Only an empty project can be deleted.", "Delete", () => call("DELETE", path)).then((gone) => gone && again());
  const editing = isAdmin(me) ? h("div", { class: "switches" }, button("Rename", () => name("Rename the project", project.name, (values) => call("PATCH", path, values), again)), button("Delete", remove, { kind: "danger" })) : "";
  return row(project.name, String(project.deviceCount), time(project.createdAt), editing);
}

async function name(title, value, send, again) {
  if (await ask({ title, fields: [{ name: "name", label: "Name", required: true, value }], action: "Save", send })) await again();
}
