import { t } from "../core/i18n.js";
import { reveal } from "./dialog.js";

export function showRecoveryCodes(codes) {
  const text = codes.join("\n");
  const intro = t("They are shown only now. Print them or keep them where your phone is not: each lets you in once without it.");
  return reveal(t("Recovery codes"), intro, [[t("Recovery codes"), text]], { name: "latchboard-recovery-codes.txt", text: `${text}\n` });
}
