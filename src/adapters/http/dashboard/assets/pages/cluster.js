/* The instances that share the devices: who owns how many partitions, what waits, what stands still, and the latest moves. */

import { get } from "../core/api.js";
import { whole } from "../core/format.js";
import { html, useEffect } from "../core/html.js";
import { n, serviceText, t } from "../core/i18n.js";
import { useLoad } from "../core/live_data_hooks.js";
import { isAdmin } from "../core/signed_in_user.js";
import { Badge, Card, Empty, Facts, LinkButton, Loaded, PageHead, Time } from "../ui/basic_components.js";
import { Icon } from "../ui/icons.js";

const EVERY_MS = 5_000;
const MOVES_SHOWN = 20;

/* Looks again every five seconds while the page is visible. */
function useCluster() {
  const loaded = useLoad((signal) => get("/cluster", signal), []);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && loaded.reload(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return loaded;
}

/* On the page of the network: the way here, where there is a cluster. */
export function ClusterCard() {
  const { data } = useLoad((signal) => (isAdmin() ? get("/cluster", signal) : Promise.resolve(null)), []);
  if (!data?.enabled) return null;
  const alive = data.instances.filter(({ isAlive }) => isAlive).length;
  return html`<${Card} title=${t("Cluster")} actions=${html`<${LinkButton} href="#/cluster" icon="chevron-right">${t("Show")}<//>`}><p>${n("{count} instance shares the devices.", "{count} instances share the devices.", alive)}</p><//>`;
}

export function Cluster() {
  const loaded = useCluster();
  return html`<${PageHead} title=${t("Cluster")} sub=${t("How several instances share the devices")} />
    <${Loaded} of=${loaded}>${(cluster) => (cluster.enabled ? html`<${Parts} cluster=${cluster} />` : html`<${Empty} icon="cpu" title=${t("One instance holds all devices")}>${t("LATCHBOARD_CLUSTER spreads them over several; docs/how-to/cluster.md says how.")}<//>`)}<//>`;
}

function Parts({ cluster }) {
  return html`<div class="columns"><${Instances} cluster=${cluster} /><${Partitions} cluster=${cluster} /></div>
    <${Troubles} partitions=${cluster.partitions} />
    <${Moves} moves=${cluster.moves} />`;
}

function Instances({ cluster }) {
  const sorted = [...cluster.instances].sort((a, b) => b.isAlive - a.isAlive || a.instance.localeCompare(b.instance));
  return html`<${Card} title=${t("Instances")}><ul class="lines">${sorted.map(({ instance, isAlive, partitions }) => html`<li class="entry" key=${instance}>
    <div class="grow"><strong>${instance}</strong>${instance === cluster.answeredBy ? html` <small class="inline">${t("answers you")}</small>` : null}<small>${n("{count} partition", "{count} partitions", partitions)}</small></div>
    ${isAlive ? html`<${Badge} kind="good">${t("alive")}<//>` : html`<${Badge} kind="bad">${t("gone")}<//>`}</li>`)}</ul><//>`;
}

function Partitions({ cluster: { partitions } }) {
  const moving = partitions.filter(({ owner }) => owner === null).length;
  const silent = partitions.filter(({ waitingEntries }) => waitingEntries === null).length;
  const waiting = partitions.reduce((sum, each) => sum + (each.waitingEntries ?? 0), 0);
  const worst = Math.max(0, ...partitions.map((each) => each.waitingEntries ?? 0));
  const facts = [
    [t("Partitions"), whole(partitions.length)],
    [t("Without an owner"), whole(moving)],
    [t("Entries that wait"), whole(waiting)],
    [t("Most in one partition"), whole(worst)],
    [t("Logs that do not answer"), silent ? whole(silent) : null],
  ];
  const fine = !moving && !silent && !partitions.some(({ problem }) => problem);
  return html`<${Card} title=${t("Partitions")} actions=${fine ? html`<${Badge} kind="good">${t("all served")}<//>` : html`<${Badge} kind="warn">${t("look below")}<//>`}><${Facts} of=${facts} /><//>`;
}

function Troubles({ partitions }) {
  const troubled = partitions.filter(({ problem, owner }) => problem || owner === null);
  if (!troubled.length) return null;
  return html`<${Card} title=${t("Not served")}><ul class="lines">${troubled.map(({ partition, problem }) => html`<li class="entry" key=${partition}>
    <div class="grow"><strong>${t("Partition {number}", { number: partition })}</strong><small>${serviceText(problem) ?? t("It is on its way to another instance. That takes a second or two.")}</small></div>
    ${problem ? html`<${Badge} kind="bad">${t("stands still")}<//>` : html`<${Badge} kind="wait">${t("moving")}<//>`}</li>`)}</ul><//>`;
}

/* Partitions that moved together are one line. */
function grouped(moves) {
  const groups = new Map();
  for (const { partition, previousOwner, owner, at } of moves) {
    const key = `${at}/${previousOwner}/${owner}`;
    if (!groups.has(key)) groups.set(key, { key, partitions: [], previousOwner, owner, at });
    groups.get(key).partitions.push(partition);
  }
  return [...groups.values()];
}

function Moves({ moves }) {
  const list = html`<ul class="lines">${grouped(moves).slice(0, MOVES_SHOWN).map(({ key, partitions, previousOwner, owner, at }) => html`<li class="entry" key=${key}>
    <div class="grow"><strong>${previousOwner ?? t("nobody")} <${Icon} name="chevron-right" size=${14} /> ${owner}</strong><small>${n("{count} partition", "{count} partitions", partitions.length)}: ${partitions.sort((a, b) => a - b).join(", ")}</small></div><small><${Time} at=${at} /></small></li>`)}</ul>`;
  return html`<${Card} title=${t("Latest moves")}>${moves.length ? list : html`<p class="dim">${t("The instance that answers has seen none since it started.")}</p>`}<//>`;
}
