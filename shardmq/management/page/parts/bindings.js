// Bindings of a queue or an exchange, as a table; more can be made, and each can be removed.

import { html } from "../vendor/preact.js";
import { post, remove } from "../api.js";
import { path } from "../format.js";
import { link } from "../route.js";
import { argumentsIn, DialogButton, Form, objectIn } from "./dialog.js";
import { Arguments } from "./states.js";
import { Table } from "./table.js";
import { doing } from "./toasts.js";

const LETTER = { queue: "q", exchange: "e" };

const placeOf = (row) => `/bindings${path(row.vhost, "e", row.source, LETTER[row.destination_type], row.destination)}`;

// Args: side: "source" shows where messages come from, "destination" where they go.
// destination: what is bound, where this is the table of one; source: the exchange, where it is that of one.
export function BindingsTable({ rows, side, vhost, source, destination, again }) {
  const other = (row) =>
    side === "source"
      ? html`<a href=${link(["exchanges", vhost, row.source])}>${row.source || "(default)"}</a>`
      : html`<a href=${link([row.destination_type === "queue" ? "queues" : "exchanges", vhost, row.destination])}>${row.destination}</a>${" "}
          <span class="dim">${row.destination_type}</span>`;
  const unbind = (row) => doing(() => remove(`${placeOf(row)}/${encodeURIComponent(row.properties_key)}`), "Removed the binding.").then(again);
  const columns = [
    { title: side === "source" ? "From" : "To", isName: true, cell: other },
    { title: "Routing key", cell: (row) => html`<code>${row.routing_key}</code>` },
    { title: "Arguments", cell: (row) => html`<${Arguments} values=${row.arguments} />` },
    { title: "", cell: (row) => row.source && html`<button onClick=${() => unbind(row)} aria-label=${`Unbind ${row.routing_key} of ${row.source}`}>Unbind</button>` },
  ];
  return html`<${Table} columns=${columns} rows=${rows} caption="Bindings" keyOf=${(row) => [row.source, row.destination_type, row.destination, row.properties_key].join("\n")} />
    <p><${DialogButton} label="Bind">${(close) => html`<${Bind} ...${{ vhost, source, destination }} onDone=${() => [close(), again()]} />`}<//></p>`;
}

function Bind({ vhost, source, destination, onDone }) {
  const work = (values) => {
    const from = source ?? values.source;
    const to = destination ?? { type: values.type, name: values.name };
    return post(`/bindings${path(vhost, "e", from, to.type, to.name)}`, { routing_key: values.key, arguments: objectIn(values.arguments) });
  };
  const command = (values) => {
    const to = destination ?? { type: values.type, name: values.name };
    const words = ["binding", "declare", ...(to.type === "e" ? ["--to-exchange"] : []), ...argumentsIn(values.arguments)];
    return { words, names: [source ?? values.source, to.name, values.key], vhost };
  };
  return html`<${Form} submit="Bind" work=${work} done="Made the binding." onDone=${onDone} command=${command}>
    ${!source && html`<label>Exchange <input name="source" required autofocus /></label>`}
    ${!destination &&
    html`<div class="columns">
      <label>To <select name="type"><option value="q">the queue</option><option value="e">the exchange</option></select></label>
      <label>Named <input name="name" required /></label>
    </div>`}
    <label>Routing key <input name="key" /></label>
    <label>Arguments, as JSON <textarea name="arguments"></textarea></label>
  <//>`;
}
