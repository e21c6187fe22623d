/* Rules: conditions on telemetry that run a command. */

import { call, get } from "../../core/api.js";
import { orderText } from "../../core/channels.js";
import { plainParams, seconds } from "../../core/format.js";
import { html } from "../../core/html.js";
import { t } from "../../core/i18n.js";
import { ofDevice, useLoad } from "../../core/live_data_hooks.js";
import { mayEdit } from "../../core/signed_in_user.js";
import { Badge, Button, Card, Empty, Loaded } from "../../ui/basic_components.js";
import { confirmed } from "../../ui/dialog.js";
import { editRule, nameMetric } from "../../ui/rule_form.js";
import { tell } from "../../ui/toasts.js";
import { conditionsText } from "../../ui/rule_texts.js";

export function Rules({ device, path }) {
  const rules = useLoad((signal) => get(`${path}/rules`, signal), [path], ofDevice(device.deviceId, "rule_"));
  const edit = (rule) => editRule(rule, path).then((done) => done && rules.reload());
  const name = () => nameMetric(path).then((named) => named && tell(t("Rules can use it now: {metrics}", { metrics: named.metrics.join(", ") })));
  const add = mayEdit() ? html`<${Button} kind="main" icon="plus" act=${() => edit(null)}>${t("New rule")}<//>` : null;
  const metric = mayEdit() ? html`<${Button} icon="activity" act=${name}>${t("Name a metric")}<//>` : null;
  return html`<${Card} title=${t("Rules")} actions=${[metric, add]}>
    <${Loaded} of=${rules}>${(all) => all.length ? html`<ul class="rules">${all.map((rule) => html`<${Rule} key=${rule.ruleId} rule=${rule} channels=${device.channels} path=${path} edit=${edit} reload=${rules.reload} />`)}</ul>
      <p class="dim">${t("A rule runs its command once when its conditions become true, and again only after they were false.")}</p>` : html`<${Empty} icon="activity" title=${t("No rules yet")} action=${add}>${t("For example: switch on when the temperature is above 27 for five minutes.")}<//>`}<//>
  <//>`;
}

function Rule({ rule, channels, path, edit, reload }) {
  const { ruleId, name, enabled, priority, conditions, clearConditions, match, action, forSeconds, cooldownSeconds, lastMatched, disabledReason, waitsFor } = rule;
  const wanted = enabled || waitsFor.length > 0;
  const at = `${path}/rules/${ruleId}`;
  const toggle = () => call("PATCH", at, { enabled: !wanted }).then(reload);
  const gone = () => confirmed(t("Delete “{name}”?", { name }), t("It no longer fires."), t("Delete"), () => call("DELETE", at)).then((done) => done && reload());
  const more = [forSeconds ? t("for {time}", { time: seconds(forSeconds) }) : null, clearConditions.length ? t("until {conditions}", { conditions: conditionsText(clearConditions, "ALL") }) : null, cooldownSeconds ? t("not again within {time}", { time: seconds(cooldownSeconds) }) : null, t("priority {priority}", { priority })].filter(Boolean);
  return html`<li class="rule" aria-label=${name}>
    <div class="grow">
      <p class="line"><strong>${name}</strong> ${enabled ? html`<${Badge} kind=${lastMatched ? "warn" : "off"} icon=${lastMatched ? "activity" : null}>${lastMatched ? t("holds now") : t("does not hold")}<//>` : html`<${Badge} kind="off" icon="pause">${wanted ? t("waits for {metrics}", { metrics: waitsFor.join(", ") }) : t("disabled")}<//>`}</p>
      <p>${t("When {conditions}:", { conditions: conditionsText(conditions, match) })} <strong>${orderText(action, channels)}</strong> ${plainParams(action.params)}</p>
      <p class="dim">${more.join(" · ")}</p>
      ${disabledReason ? html`<p class="bad">${disabledReason}</p>` : null}
    </div>
    ${mayEdit() ? html`<div class="actions"><${Button} small icon="pencil" act=${() => edit(rule)}>${t("Edit")}<//><${Button} small icon=${wanted ? "pause" : "play"} act=${toggle}>${wanted ? t("Disable") : t("Enable")}<//><${Button} small kind="quiet danger" icon="trash" label=${t("Delete {name}", { name })} act=${gone} /></div>` : null}
  </li>`;
}
