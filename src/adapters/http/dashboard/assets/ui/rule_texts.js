/* Conditions in words. */

import { number, seconds } from "../core/format.js";
import { t } from "../core/i18n.js";

export const COMPARATORS = () => [[">", t("is above")], [">=", t("is at least")], ["<", t("is below")], ["<=", t("is at most")], ["==", t("is")], ["!=", t("is not")], ["silent", t("was not reported for (seconds)")]];

function conditionText({ metric, comparator, value }) {
  if (comparator === "silent") return t("{metric} was not reported for {time}", { metric, time: seconds(Number(value)) });
  const said = COMPARATORS().find(([each]) => each === comparator)?.[1] ?? comparator;
  return `${metric} ${said} ${typeof value === "number" ? number(value) : `“${value}”`}`;
}

export const conditionsText = (conditions, match) => conditions.map(conditionText).join(match === "ANY" ? ` ${t("or")} ` : ` ${t("and")} `);
