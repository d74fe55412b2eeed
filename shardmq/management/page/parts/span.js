// How far back charts go: a choice that is in the address of the view.

import { html } from "../vendor/preact.js";
import { query as words } from "../api.js";
import { refine } from "../route.js";

// Seconds back, and between two samples; the broker keeps samples of queues no closer.
const SPANS = { "10m": [600, 5, "10 minutes"], "1h": [3600, 60, "an hour"], "1d": [86400, 600, "a day"] };
const DEFAULT = "10m";

const chosen = (query) => (query.span in SPANS ? query.span : DEFAULT);

// The words of a request that asks for samples of these kinds: "lengths", "msg_rates", "data_rates", "node_stats".
export function samplesOf(query, ...kinds) {
  const [age, step] = SPANS[chosen(query)];
  return words(Object.fromEntries(kinds.flatMap((kind) => [[`${kind}_age`, age], [`${kind}_incr`, step]])));
}

export function SpanChoice({ query }) {
  return html`<label class="dim"
    >Charts of
    <select onChange=${(event) => refine({ span: event.target.value })}>
      ${Object.entries(SPANS).map(([name, [, , title]]) => html`<option value=${name} selected=${name === chosen(query)}>${title}</option>`)}
    </select>
  </label>`;
}
