// Exchanges, and one of them: its bindings, what goes through it, and a message published to it.

import { html } from "../vendor/preact.js";
import { put, remove } from "../api.js";
import { count, path, rate, rateOf } from "../format.js";
import { useAnswer } from "../live.js";
import { go, link } from "../route.js";
import { BindingsTable } from "../parts/bindings.js";
import { Chart } from "../parts/chart.js";
import { Command } from "../parts/command.js";
import { argumentsIn, ConfirmButton, DialogButton, Form, objectIn } from "../parts/dialog.js";
import { VirtualHostField } from "../parts/fields.js";
import { Publish } from "../parts/publish.js";
import { samplesOf, SpanChoice } from "../parts/span.js";
import { Answered, Arguments, Facts, Head } from "../parts/states.js";
import { PagedTable } from "../parts/table.js";

const TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash"];
const DEFAULT = "amq.default";

const addressOf = (row) => link(["exchanges", row.vhost, row.name || DEFAULT]);

export function Exchanges({ query }) {
  const columns = [
    { title: "Name", sort: "name", isName: true, cell: (row) => html`<a href=${addressOf(row)}>${row.name || "(default)"}</a>` },
    { title: "Virtual host", sort: "vhost", cell: (row) => row.vhost },
    { title: "Type", sort: "type", cell: (row) => row.type },
    { title: "Durable", cell: (row) => (row.durable ? "yes" : "no") },
    { title: "Policy", cell: (row) => row.policy ?? "" },
    { title: "In", sort: "message_stats.publish_in_details.rate", isNumber: true, cell: (row) => rate(rateOf(row, "publish_in")) },
    { title: "Out", sort: "message_stats.publish_out_details.rate", isNumber: true, cell: (row) => rate(rateOf(row, "publish_out")) },
  ];
  return html`<${Head} title="Exchanges" />
    <${PagedTable} path="/exchanges" columns=${columns} query=${query} caption="Exchanges" keyOf=${(row) => `${row.vhost}\n${row.name}`} tools=${(again) => html`<${Declare} again=${again} />`} />
    <${Command} words=${["exchange", "list"]} />`;
}

function Declare({ again }) {
  const work = (values) =>
    put(`/exchanges${path(values.vhost, values.name)}`, {
      type: values.type,
      durable: true,
      auto_delete: false,
      internal: Boolean(values.internal),
      arguments: objectIn(values.arguments),
    });
  const command = (values) => ({
    words: ["exchange", "declare", "--type", values.type, ...(values.internal ? ["--internal"] : []), ...argumentsIn(values.arguments)],
    names: [values.name],
    vhost: values.vhost,
  });
  return html`<${DialogButton} label="Declare an exchange">
    ${(close) => html`<${Form} submit="Declare" work=${work} done="Declared the exchange." onDone=${() => [close(), again()]} command=${command}>
      <div class="columns">
        <label>Name <input name="name" required autofocus /></label>
        <${VirtualHostField} />
        <label>Type <select name="type">${TYPES.map((type) => html`<option>${type}</option>`)}</select></label>
      </div>
      <label>Arguments, as JSON <textarea name="arguments" placeholder=${'{"alternate-exchange": "unrouted"}'}></textarea></label>
      <label class="check"><input type="checkbox" name="internal" />Internal: for other exchanges alone</label>
    <//>`}
  <//>`;
}

const flowsOf = (exchange) =>
  ["publish_in", "publish_out"].map((counter) => ({
    title: counter === "publish_in" ? "in" : "out",
    samples: exchange.message_stats?.[`${counter}_details`]?.samples,
    isTotal: true,
  }));

export function Exchange({ parts: [vhost, name], query }) {
  const place = `/exchanges${path(vhost, name)}`;
  const answer = useAnswer(`${place}${samplesOf(query, "msg_rates")}`);
  const bindings = useAnswer(`${place}/bindings/source`);
  const incoming = useAnswer(`${place}/bindings/destination`);
  const isDefault = name === DEFAULT;
  return html`<${Head} title=${isDefault ? "(default)" : name}><span class="dim">exchange in ${vhost}</span><span class="grow"></span><${SpanChoice} query=${query} /><//>
    <${Answered} answer=${answer}>
      ${(exchange) => html`<section class="card">
          <${Facts}
            rows=${[
              ["Type", exchange.type],
              ["Durable", exchange.durable ? "yes" : "no"],
              exchange.internal && ["Internal", "yes: clients cannot publish to it"],
              ["Arguments", html`<${Arguments} values=${exchange.arguments} />`],
              ["Policy", exchange.policy ?? html`<span class="dim">none</span>`],
              ["Messages in", count(exchange.message_stats?.publish_in)],
              ["Messages out", count(exchange.message_stats?.publish_out)],
            ]}
          />
        </section>
        <div class="cards"><${Chart} title="Messages a second" series=${flowsOf(exchange)} format=${rate} /></div>
        ${isDefault
          ? html`<div class="note">Every queue is bound to it by its own name.</div>`
          : html`<section class="card">
              <h2>Bindings from here</h2>
              <${Answered} answer=${bindings}>
                ${(rows) => html`<${BindingsTable} rows=${rows} side="destination" vhost=${vhost} source=${name} again=${bindings.again} />`}
              <//>
            </section>
            <section class="card">
              <h2>Bindings to it</h2>
              <${Answered} answer=${incoming}>
                ${(rows) => html`<${BindingsTable} rows=${rows} side="source" vhost=${vhost} destination=${{ type: "e", name }} again=${incoming.again} />`}
              <//>
            </section>`}
        ${!exchange.internal && html`<${Publish} vhost=${vhost} exchange=${name} onDone=${answer.again} />`}
        ${!isDefault &&
        !name.startsWith("amq.") &&
        html`<${ConfirmButton}
          label="Delete"
          title=${`Delete ${name}`}
          name=${name}
          text="The exchange is deleted with its bindings. What is published to it then is refused."
          command=${{ words: ["exchange", "delete"], names: [name], vhost }}
          work=${() => remove(place)}
          done=${`Deleted ${name}.`}
          onDone=${() => go(["exchanges"])}
        />`}`}
    <//>`;
}
