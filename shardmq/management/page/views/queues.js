// All queues: searched, sorted and cut into pages by the broker.

import { html, useState } from "../vendor/preact.js";
import { put } from "../api.js";
import { bytes, count, path, rate, rateOf } from "../format.js";
import { link } from "../route.js";
import { Sparkline } from "../parts/chart.js";
import { Command } from "../parts/command.js";
import { Findings } from "../parts/findings.js";
import { argumentsIn, DialogButton, Form, objectIn } from "../parts/dialog.js";
import { placeOf, useSparks } from "../parts/sparks.js";
import { Head } from "../parts/states.js";
import { PagedTable } from "../parts/table.js";
import { VirtualHostField } from "../parts/fields.js";

export function Features({ row }) {
  const names = [
    row.durable && ["D", "durable"],
    row.auto_delete && ["AD", "deleted when its last consumer leaves"],
    row.exclusive && ["Ex", "for one connection"],
    row.arguments?.["x-max-priority"] && ["Pri", "priorities"],
    row.arguments?.["x-message-ttl"] && ["TTL", "messages expire"],
    row.arguments?.["x-dead-letter-exchange"] !== undefined && ["DLX", "dead letters go to an exchange"],
    row.arguments?.["x-single-active-consumer"] && ["SAC", "one active consumer"],
    row.policy && [row.policy, "policy"],
  ].filter(Boolean);
  return html`<span class="tags">${names.map(([name, title]) => html`<span class="tag plain" title=${title}>${name}</span>`)}</span>`;
}

export function State({ row }) {
  const state = row.state ?? "running";
  return html`<span class=${`tag ${state === "running" ? "good" : state === "idle" ? "plain" : "bad"}`}>${state}</span>`;
}

// What is asked for alone where a row of the page is out: who has ten thousand queues that are well waits for less.
const isOut = (row) => row.state === "down" || row.state === "crashed";
const tellsOfOut = ({ rule }) => rule === "shard-away" || rule === "queue-damaged";

export function Queues({ query }) {
  const [seen, setSeen] = useState([]);
  const sparksOf = useSparks(seen);
  const flow = (title, counter, kind) => ({
    title,
    sort: `message_stats.${counter}_details.rate`,
    isNumber: true,
    cell: (row) => html`<${Sparkline} values=${sparksOf(row)[counter]} kind=${kind} /> <span class="beside">${rate(rateOf(row, counter))}</span>`,
  });
  const depth = (row) => html`<${Sparkline} values=${sparksOf(row).messages} /> <span class="beside">${count(row.messages)}</span>`;
  const columns = [
    { title: "Name", sort: "name", isName: true, cell: (row) => html`<a href=${link(["queues", row.vhost, row.name])}>${row.name}</a>` },
    { title: "State", sort: "state", cell: (row) => html`<${State} row=${row} />` },
    { title: "Messages", sort: "messages", isNumber: true, cell: depth },
    { title: "Ready", sort: "messages_ready", isNumber: true, cell: (row) => count(row.messages_ready) },
    { title: "Unacked", sort: "messages_unacknowledged", isNumber: true, cell: (row) => count(row.messages_unacknowledged) },
    { title: "Consumers", sort: "consumers", isNumber: true, cell: (row) => count(row.consumers) },
    flow("In", "publish", "in"),
    flow("Out", "deliver_get", "out"),
    flow("Acked", "ack", "acked"),
    { title: "Bytes", sort: "message_bytes", isNumber: true, cell: (row) => bytes(row.message_bytes) },
    { title: "Type", sort: "type", cell: (row) => row.type },
    { title: "Features", cell: (row) => html`<${Features} row=${row} />` },
    { title: "Virtual host", sort: "vhost", cell: (row) => row.vhost },
  ];
  return html`<${Head} title="Queues" />
    <${PagedTable}
      path="/queues"
      columns=${columns}
      query=${query}
      caption="Queues"
      empty="There are no queues yet."
      keyOf=${placeOf}
      watch=${setSeen}
      notes=${(rows) => rows.some(isOut) && html`<${Findings} isQuiet=${true} only=${tellsOfOut} />`}
      tools=${(again) => html`<${Declare} again=${again} />`}
    />
    <${Command} words=${["queue", "list"]} />`;
}

const TYPES = ["classic", "quorum", "stream"];

function Declare({ again }) {
  const work = (values) => {
    const given = objectIn(values.arguments);
    if (values.type !== "classic") given["x-queue-type"] = values.type;
    return put(`/queues${path(values.vhost, values.name)}`, { durable: true, auto_delete: false, arguments: given });
  };
  const command = (values) => {
    const type = values.type === "classic" ? [] : ["--argument", `x-queue-type=${values.type}`];
    return { words: ["queue", "declare", ...type, ...argumentsIn(values.arguments)], names: [values.name], vhost: values.vhost };
  };
  return html`<${DialogButton} label="Declare a queue">
    ${(close) => html`<${Form} submit="Declare" work=${work} done="Declared the queue." onDone=${() => [close(), again()]} command=${command}>
      <div class="columns">
        <label>Name <input name="name" required autofocus /></label>
        <${VirtualHostField} />
        <label>Type <select name="type">${TYPES.map((type) => html`<option>${type}</option>`)}</select></label>
      </div>
      <label>Arguments, as JSON <textarea name="arguments" placeholder=${'{"x-max-length": 100000}'}></textarea></label>
    <//>`}
  <//>`;
}
