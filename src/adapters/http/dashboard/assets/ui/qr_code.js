/* A QR code as SVG elements, in the quiet zone that readers need. Its rows have a `1` for each dark module. */

import { html, useEffect, useState } from "../core/html.js";

const QUIET = 4;

/* `rows`: null while they are made. */
export function QrCode({ rows, label }) {
  if (rows === null) return html`<div class="qr" />`;
  const size = rows.length + 2 * QUIET;
  const runs = rows.flatMap((row, y) => [...row.matchAll(/1+/g)].map(({ 0: run, index }) => `M${index + QUIET} ${y + QUIET}h${run.length}v1h-${run.length}z`));
  return html`<svg class="qr" viewBox=${`0 0 ${size} ${size}`} role="img" aria-label=${label} shape-rendering="crispEdges"><path d=${runs.join("")} /></svg>`;
}

/* The code is made in the browser, by a library that is loaded with the first one: the text may hold a password. */
export function QrOfText({ text, label }) {
  const [rows, setRows] = useState(null);
  useEffect(() => {
    let current = true;
    import("../vendor/uqr.js").then(({ encode }) => current && setRows(encode(text, { ecc: "M", border: 0 }).data.map((row) => row.map(Number).join(""))));
    return () => {
      current = false;
    };
  }, [text]);
  return html`<${QrCode} rows=${rows} label=${label} />`;
}
