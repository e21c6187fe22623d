import { t } from "./i18n.js";

/* `Firefox · Linux` of a long User-Agent; the whole text if it is none of a browser. */
export function programOf(userAgent) {
  const program = /(Edg|OPR|Firefox|Chrome|Safari)\//.exec(userAgent)?.[1];
  const system = /(Android|iPhone|iPad|Windows|Mac OS X|Linux)/.exec(userAgent)?.[1];
  return program ? [{ Edg: "Edge", OPR: "Opera" }[program] ?? program, system].filter(Boolean).join(" · ") : userAgent || t("unknown");
}
