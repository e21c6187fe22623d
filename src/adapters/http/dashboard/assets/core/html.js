/* Markup in modules: Preact's elements written with htm. Text is always set as text, so nothing that a device or user wrote can become markup. */

import { h, render } from "../vendor/preact.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { signal } from "../vendor/signals.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { h, render, signal, useEffect, useRef, useState };
