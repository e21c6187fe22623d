/* The dialogs that are open, the topmost last. */

import { signal } from "../core/html.js";

export const openDialogs = signal([]);
