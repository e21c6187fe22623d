/* Markup in modules: Preact's elements written with htm. Text is always set as text, so nothing that a device or user wrote can become markup. */

import { createContext, Fragment, h, render } from "../vendor/preact.js";
import { useCallback, useContext, useEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
import { batch, computed, effect, signal, useSignal } from "../vendor/signals.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { batch, computed, createContext, effect, Fragment, h, render, signal, useCallback, useContext, useEffect, useMemo, useRef, useSignal, useState };
