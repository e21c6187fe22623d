/* Adding one device: its firmware and name, then what to put on it, then the first switch. */

import { call, get } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { t } from "../core/i18n.js";
import { useLoad } from "../core/live_data_hooks.js";
import { go, place } from "../core/router.js";
import { mayEdit } from "../core/signed_in_user.js";
import { Card, Empty, LinkButton, Loaded, PageHead } from "../ui/basic_components.js";
import { Icon } from "../ui/icons.js";
import { PageForm } from "../ui/page_form.js";
import { keepCredentials } from "./add_device/new_device_credentials.js";
import { Onboarding } from "./add_device/onboarding.js";

const firmwares = () => [
  { id: "ESP32", icon: "cpu", name: t("ESP32 or ESP8266"), what: t("a sketch for the Arduino IDE") },
  { id: "MICROPYTHON", icon: "cpu", name: "MicroPython", what: t("its files, for an ESP32 or a Pico W") },
  { id: "ESPHOME", icon: "scroll-text", name: "ESPHome", what: t("its YAML file") },
  { id: "TASMOTA", icon: "plug", name: "Tasmota", what: t("one line for its console") },
  { id: "SHELLY", icon: "toggle-left", name: "Shelly", what: t("one request, generation 2 and later") },
  { id: "OTHER", icon: "settings", name: t("Something else"), what: t("host, user and password for MQTT") },
];

export function Add() {
  const [deviceId] = place.value.rest;
  if (!mayEdit()) return html`<${PageHead} title=${t("Add a device")} /><${Card}><${Empty} icon="lock" title=${t("Viewers register no devices")} /><//>`;
  if (deviceId) return html`<${Onboarding} key=${deviceId} deviceId=${deviceId} />`;
  return html`<${New} />`;
}

function New() {
  const [boardType, setBoardType] = useState("");
  const lists = useLoad((signal) => Promise.all(["/catalog/apps", "/projects"].map((path) => get(path, signal))), []);
  return html`<${PageHead} title=${t("Add a device")} actions=${html`<${LinkButton} href="#/fleet/add" icon="list-checks">${t("Add many")}<//>`} />
    <${Card} title=${t("1. What runs on it?")}>
      <div class="kinds" role="group" aria-label=${t("What runs on it?")}>${firmwares().map(({ id, icon, name, what }) => html`<button type="button" class="kind" key=${id} aria-pressed=${String(id === boardType)} onClick=${() => setBoardType(id)}><${Icon} name=${icon} size=${24} /><span><strong>${name}</strong><small>${what}</small></span></button>`)}</div>
    <//>
    ${boardType ? html`<${Loaded} of=${lists}>${([apps, projects]) => html`<${Name} key=${boardType} boardType=${boardType} apps=${apps} projects=${projects} />`}<//>` : null}`;
}

function Name({ boardType, apps, projects }) {
  const fields = [
    { name: "name", label: t("Name"), required: true, autofocus: true },
    { name: "appType", label: t("What it switches"), options: apps.map((each) => [each.appType, t(each.name)]), value: "RELAY" },
    { name: "appTypeOther", label: t("What"), when: ({ appType }) => appType === "OTHER", required: true },
    ...(projects.length > 1 ? [{ name: "projectId", label: t("Project"), options: projects.map(({ projectId, name }) => [projectId, name]) }] : []),
    { name: "location", label: t("Place"), hint: t("For example: greenhouse 2, north wall") },
  ];
  const send = async (values) => {
    const { deviceId } = await call("POST", "/devices/register", { boardType, ...values });
    keepCredentials(deviceId, await call("POST", `/devices/${deviceId}/credentials`));
    go(`add/${deviceId}`);
  };
  return html`<${Card} title=${t("2. What is it called?")}><${PageForm} fieldsOf=${() => fields} prefix="new" action=${t("Continue")} icon="chevron-right" send=${send} /><//>`;
}
