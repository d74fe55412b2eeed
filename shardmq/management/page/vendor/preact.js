// preact with its hooks and htm, as the page imports them.

import { h } from "./preact.core.js";
import htm from "./htm.js";

export * from "./preact.core.js";
export * from "./preact.hooks.js";
export const html = htm.bind(h);
