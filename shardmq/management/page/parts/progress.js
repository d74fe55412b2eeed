// How far something is, and how it is ended.

import { html } from "../vendor/preact.js";

// Args: label: what the bar tells; share: from 0 to 1; cancel: ends it behind what is under way.
export function Progress({ label, share, cancel }) {
  return html`<div class="pages">
    <progress aria-label=${label} value=${share}></progress>
    <button type="button" onClick=${cancel}>Cancel</button>
  </div>`;
}
