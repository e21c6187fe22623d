/* The small parts of every page: buttons, badges, cards, times, empty and loading states. */

import { ago, exact } from "../core/format.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { errorText, t } from "../core/i18n.js";
import { openDialogs } from "./dialog_stack.js";
import { Icon } from "./icons.js";
import { tell } from "./toasts.js";

/* `act` may return a promise: until it settles, further clicks are ignored. Its error is shown. */
export function Button({ act, kind = "", icon, label, small, disabled, children, type = "button", ...rest }) {
  const [busy, setBusy] = useState(false);
  const running = useRef(false);
  const depth = useRef(0);
  const press = async (event) => {
    if (running.current || !act) return;
    running.current = true;
    depth.current = openDialogs.value.length;
    setBusy(true);
    try {
      await act(event);
    } catch (error) {
      tell(error);
    } finally {
      running.current = false;
      setBusy(false);
    }
  };
  const bare = !children;
  const waiting = busy && openDialogs.value.length <= depth.current; // not while it waits for a person in a dialog
  return html`<button type=${type} class=${["button", kind, small && "small", bare && "bare"].filter(Boolean).join(" ")} aria-busy=${waiting ? "true" : null} aria-disabled=${waiting ? "true" : null} aria-label=${label} title=${bare ? label : null} disabled=${disabled} onClick=${press} ...${rest}>
    ${waiting ? html`<${Icon} name="loader-circle" size=${18} spin />` : icon ? html`<${Icon} name=${icon} size=${18} />` : null}
    ${bare ? null : html`<span>${children}</span>`}
  </button>`;
}

export function LinkButton({ href, kind = "", icon, children }) {
  return html`<a class=${`button ${kind}`} href=${href}>${icon ? html`<${Icon} name=${icon} size=${18} />` : null}<span>${children}</span></a>`;
}

/* Links to the sections of a page: [name, label]. Where they do not fit side by side, the chosen one is scrolled into view. */
export function Tabs({ label, base, sections, chosen }) {
  const bar = useRef(null);
  useEffect(() => {
    const link = bar.current.querySelector("[aria-current]");
    if (link) bar.current.scrollLeft = link.offsetLeft - (bar.current.clientWidth - link.offsetWidth) / 2;
  }, [chosen]);
  return html`<nav ref=${bar} class="tabs" aria-label=${label}>${sections.map(([name, text]) => html`<a key=${name} href=${`#/${base}/${name}`} aria-current=${name === chosen ? "page" : null}>${text}</a>`)}</nav>`;
}

const SHAPES = { good: "circle-check", bad: "circle-x", warn: "triangle-alert", wait: "hourglass", off: "circle", info: "info", on: "zap" };

/* A state: always a word with a shape, never a colour alone. */
export function Badge({ kind = "off", icon, children }) {
  return html`<span class=${`badge ${kind}`}><${Icon} name=${icon ?? SHAPES[kind] ?? "circle"} size=${14} /><span>${children}</span></span>`;
}

export function Time({ at, none = "–" }) {
  if (at === null || at === undefined) return html`<span class="dim">${none}</span>`;
  const date = new Date(at);
  return html`<time datetime=${date.toISOString()} title=${exact(at)}>${ago(at)}</time>`;
}

export function Card({ title, actions, children, kind = "", id }) {
  const head = title || actions ? html`<header class="card-head">${title ? html`<h2 id=${id}>${title}</h2>` : null}<div class="actions">${actions}</div></header>` : null;
  return html`<section class=${`card ${kind}`}>${head}${children}</section>`;
}

export function PageHead({ title, sub, actions }) {
  return html`<header class="page-head"><div><h1 tabindex="-1">${title}</h1>${sub ? html`<p class="dim">${sub}</p>` : null}</div><div class="actions">${actions}</div></header>`;
}

/* What is not there yet says the next step. */
export function Empty({ icon = "inbox", title, children, action }) {
  return html`<div class="empty"><${Icon} name=${icon} size=${32} /><p class="strong">${title}</p>${children ? html`<p class="dim">${children}</p>` : null}${action}</div>`;
}

export function Skeleton({ lines = 3 }) {
  return html`<div class="skeleton" role="status" aria-label=${t("Loading")}>${Array.from({ length: lines }, () => html`<div />`)}</div>`;
}

/* The three states of loaded data. `children` is a function of the data. */
export function Loaded({ of, lines, children }) {
  if (of.data !== undefined) return html`${of.error ? html`<${Problem} error=${of.error} retry=${of.reload} />` : null}${children(of.data)}`;
  if (of.error) return html`<${Problem} error=${of.error} retry=${of.reload} />`;
  return html`<${Skeleton} lines=${lines} />`;
}

export function Problem({ error, retry }) {
  return html`<div class="problem" role="alert"><${Icon} name="triangle-alert" /><span>${errorText(error)}</span>${retry ? html`<${Button} act=${retry} small>${t("Try again")}<//>` : null}</div>`;
}

export function Facts({ of }) {
  /* of: [label, value, wide?] */
  const shown = of.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<dl class="facts">${shown.map(([label, value, wide]) => html`<div class=${wide ? "wide" : null}><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/* One of a few choices. options: [[value, label, count?]] */
export function Choice({ label, options, value, onChange }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(([each, text, count]) => html`<button type="button" aria-pressed=${String(each === value)} onClick=${() => onChange(each)}>${text}${count === undefined || count === null ? null : html` <span class="count">${count}</span>`}</button>`)}
  </div>`;
}

/* Loads the next page of a list. With the last one the button goes, and the focus that it had stays at the end of the list. */
export function More({ next, load, children }) {
  const place = useRef(null);
  const pressed = useRef(false);
  useEffect(() => {
    if (!next && pressed.current && document.activeElement === document.body) place.current.focus();
  }, [!next]);
  const press = () => {
    pressed.current = true;
    return load();
  };
  return html`<div class="more" ref=${place} tabindex="-1">${next ? html`<${Button} act=${press} icon="chevron-down">${children ?? t("Show more")}<//>` : null}</div>`;
}
