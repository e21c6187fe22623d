/* Text to copy: commands, settings, files of firmware. */

import { html, useRef, useState } from "../core/html.js";
import { t } from "../core/i18n.js";
import { Button } from "./basic_components.js";

/* Browsers offer the clipboard only over TLS or on localhost; elsewhere the text is selected for Ctrl+C. Returns [said, copy]. */
export function useCopy(field, text) {
  const [said, setSaid] = useState(t("Copy"));
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid(t("Copied"));
    } catch {
      select(field.current);
      setSaid(t("Press Ctrl+C"));
    }
  };
  return [said, copy];
}

function select(element) {
  if (element.select) element.select();
  else getSelection().selectAllChildren(element);
}

export function CopyBlock({ text, label, kind = "", children }) {
  const block = useRef(null);
  const [said, copy] = useCopy(block, text);
  return html`<div class=${`copy-block ${kind}`}><pre ref=${block} tabindex="0" aria-label=${label}>${text}</pre><div class="actions"><${Button} icon="copy" small act=${copy} aria-label=${t("Copy: {label}", { label })}>${said}<//>${children}</div></div>`;
}
