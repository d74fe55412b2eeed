// How far something is, and how it is ended.

import { html, useEffect, useRef } from "../vendor/preact.js";
import { keepFocus, nearby } from "./focus.js";

// Args: label: what the bar tells; share: from 0 to 1; cancel: ends it behind what is under way.
export function Progress({ label, share, cancel }) {
  const element = useRef();
  useEffect(() => {
    const [bar, near] = [element.current, nearby(element.current)];
    return () => keepFocus(bar, near);
  }, []);
  return html`<div class="pages" ref=${element}>
    <progress aria-label=${label} value=${share}></progress>
    <button type="button" onClick=${cancel}>Cancel</button>
  </div>`;
}
