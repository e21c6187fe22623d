/* Creates elements. Text is always set as text, so nothing that a device or user wrote can become markup. */

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  return fill(element, children);
}

function set(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (typeof value === "function") element.addEventListener(name.slice(2), value);
  else if (name === "value") element.value = value;
  else element.setAttribute(name, value === true ? "" : value);
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function button(label, act, { kind = "", title, disabled = false } = {}) {
  return h("button", { type: "button", class: kind, title, disabled, onclick: (event) => busy(event.currentTarget, act) }, label);
}

/* Ignores clicks while the action runs, and shows its error. */
export async function busy(element, act) {
  if (element.getAttribute("aria-busy") === "true") return;
  element.setAttribute("aria-busy", "true");
  try {
    await act();
  } catch (error) {
    tell(error);
  } finally {
    element.removeAttribute("aria-busy");
  }
}

export function tell(news, kind = news instanceof Error ? "bad" : "good") {
  if (news?.name === "AbortError") return;
  const notice = h("p", { class: `notice ${kind}` }, news instanceof Error ? news.message : news);
  notice.append(h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => notice.remove() }, "×"));
  document.getElementById("notices").append(notice);
  setTimeout(() => notice.remove(), kind === "bad" ? 15_000 : 6_000);
}

export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}` }, text);
}

export function table(heads, rows, empty) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = h("thead", null, h("tr", null, heads.map((text) => h("th", { scope: "col" }, text))));
  return h("div", { class: "scroll" }, h("table", null, head, h("tbody", null, rows)));
}

export function row(...cells) {
  return h("tr", null, cells.map((cell) => h("td", null, cell)));
}

export function section(title, actions, ...content) {
  return h("section", null, h("header", null, h("h2", null, title), h("div", { class: "actions" }, actions)), ...content);
}

const WHEN = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const AGO = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
const UNITS = [["day", 86_400], ["hour", 3_600], ["minute", 60], ["second", 1]];

/* `moment`: ISO text, milliseconds or null. */
export function time(moment, none = "never") {
  if (moment === null || moment === undefined) return h("span", { class: "dim" }, none);
  const date = new Date(moment);
  return h("time", { datetime: date.toISOString(), title: WHEN.format(date) }, ago(date));
}

export function ago(date) {
  const seconds = (date.getTime() - Date.now()) / 1000;
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  return AGO.format(Math.round(seconds / size), unit);
}

const REFRESH_MS = 5_000;
setInterval(() => {
  for (const element of document.querySelectorAll("time")) element.textContent = ago(new Date(element.dateTime));
}, REFRESH_MS);

export function exact(moment) {
  return moment === null ? "" : WHEN.format(new Date(moment));
}

export function localInput(date) {
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
