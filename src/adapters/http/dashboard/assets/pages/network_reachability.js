/* How phones and devices reach this machine, and what to change where they do not. */

import { get } from "../core/api.js";
import { html } from "../core/html.js";
import { t } from "../core/i18n.js";
import { useLoad } from "../core/live_data_hooks.js";
import { mayEdit } from "../core/signed_in_user.js";
import { ClusterCard } from "./cluster.js";
import { Badge, Card, Facts, LinkButton, Loaded, PageHead } from "../ui/basic_components.js";
import { CopyBlock } from "../ui/copy_button.js";
import { Icon } from "../ui/icons.js";
import { QrOfText } from "../ui/qr_code.js";

export const useNetwork = () => useLoad((signal) => get("/network", signal), []);

/* The address of the dashboard for other machines, or null: only this machine reaches it. */
export function phoneUrl({ dashboardUrl }) {
  const here = /^(localhost|127\.|\[::1\])/.test(location.hostname) ? null : location.origin;
  return here ?? dashboardUrl;
}

export function Network() {
  const loaded = useNetwork();
  const add = mayEdit() ? html`<${LinkButton} href="#/add" kind="main" icon="plus">${t("Add a device")}<//>` : null;
  return html`<${PageHead} title=${t("Phones and devices")} sub=${t("How they reach this machine")} actions=${add} />
    <${Loaded} of=${loaded}>${(network) => html`
      <${Problems} network=${network} of="CLOCK" />
      <div class="columns">
        <${Phones} network=${network} />
        <${Devices} network=${network} />
      </div>
      <${ClusterCard} />
      <${Change} problems=${network.problems} />`}<//>`;
}

function Phones({ network }) {
  const url = phoneUrl(network);
  return html`<${Card} title=${t("Phones and other computers")} actions=${url ? html`<${Badge} kind="good">${t("reachable")}<//>` : html`<${Badge} kind="warn">${t("this machine only")}<//>`}>
    ${url ? html`<div class="reach"><${QrOfText} text=${url} label=${t("QR code of {url}", { url })} /><div class="grow"><p>${t("Scan it with your phone, or open")}</p><p><a href=${url}>${url}</a></p><p class="dim">${t("On the phone, the browser’s menu puts Latchboard on the home screen.")}</p></div></div>` : null}
    <${Problems} network=${network} of="HTTP" />
    ${url?.startsWith("http:") ? html`<p class="dim">${t("The connection is not encrypted: use it in a network that you trust, or put a reverse proxy with TLS before it.")}</p>` : null}
  <//>`;
}

function Devices({ network }) {
  const { mqttHost, mqttPort, mqttWsPort, mqttTlsPort, problems } = network;
  const fine = !problems.some(({ code }) => code.startsWith("MQTT"));
  return html`<${Card} title=${t("Devices")} actions=${fine ? html`<${Badge} kind="good">${t("reachable")}<//>` : html`<${Badge} kind="warn">${t("needs a change")}<//>`}>
    <${Facts} of=${[[t("Host"), html`<code>${mqttHost}</code>`], [t("Port"), mqttPort], [t("Port with TLS"), mqttTlsPort ?? t("off")], [t("Port (WebSocket)"), mqttWsPort]]} />
    <${Problems} network=${network} of="MQTT" />
  <//>`;
}

const texts = () => ({
  CLOCK_DOUBTED: t("The clock of this machine is not believed: it jumped, or it is behind or far ahead of the newest data. The service counts the time by itself, and old data is not deleted. Set up time synchronisation (NTP). If the clock is right, run: latchboard clock trust"),
  HTTP_LOOPBACK_ONLY: t("The dashboard listens on this machine’s own address only, so no phone reaches it."),
  MQTT_LOOPBACK_ONLY: t("The broker listens on this machine’s own address only, so no device of your network reaches it."),
  MQTT_HOST_LOOPBACK: t("Devices would be told to connect to themselves: the host that they get is a loopback address."),
  MQTT_HOST_BARE_NAME: t("Devices cannot resolve the bare name of a machine: they need an address, a name in DNS, or one that ends with .local."),
});

/* `of`: CLOCK, HTTP or MQTT. */
export const Problems = ({ network, of }) => network.problems.filter(({ code }) => code.startsWith(of)).map(({ code, message }) => html`<p class="hint warn" key=${code}><${Icon} name="triangle-alert" size=${18} /><span>${texts()[code] ?? message}</span></p>`);

/* The lines of settings that solve the problems. */
export function Change({ problems }) {
  if (!problems.some(({ settings }) => settings.length)) return null;
  return html`<${Card} title=${t("What to change")}>
    <${CopyBlock} text=${problems.flatMap(({ settings }) => settings).join("\n")} label=${t("Settings")} />
    <p class="dim">${t("Add this to the file .env where the service was started (a system service: /etc/latchboard.env; a container: its environment), and restart the service. This page then shows the new addresses.")}</p>
  <//>`;
}
