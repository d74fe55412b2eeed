// Where a message went, by its id: who holds it, what it died of, and where it would go now.

import { html } from "../vendor/preact.js";
import { count, moment, path } from "../format.js";
import { useAnswer } from "../live.js";
import { go, link } from "../route.js";
import { Request } from "../parts/command.js";
import { VirtualHostField } from "../parts/fields.js";
import { Answered, Head } from "../parts/states.js";
import { Table } from "../parts/table.js";

export function Trace({ parts: [vhost, id], who }) {
  const submit = (event) => {
    event.preventDefault();
    const values = new FormData(event.target);
    if (values.get("id").trim()) go(["trace", values.get("vhost"), values.get("id").trim()]);
  };
  return html`<${Head} title="Where did a message go?" />
    <form class="tools" onSubmit=${submit}>
      <${VirtualHostField} value=${vhost ?? "/"} />
      <label>Message id <input name="id" type="search" defaultValue=${id ?? ""} placeholder="the publisher's or the broker's" /></label>
      <button class="primary">Find</button>
    </form>
    ${id === undefined
      ? html`<p class="dim">All queues, streams and topics of a virtual host are searched for a message with this id.</p>`
      : html`<${Found} vhost=${vhost} id=${id} />`}
    <${Request} path=${`/shardmq/traces${path(vhost ?? "/", id ?? "ID")}`} user=${who.name} />`;
}

function Found({ vhost, id }) {
  const answer = useAnswer(`/shardmq/traces${path(vhost, id)}`, { isLive: false });
  return html`<${Answered} answer=${answer}>
    ${(trace) => html`<${Holders} trace=${trace} vhost=${vhost} />
      <${Deaths} rows=${trace.held} vhost=${vhost} />
      ${trace.route && html`<${Route} route=${trace.route} vhost=${vhost} />`}
      <${Unseen} rows=${trace.unseen} vhost=${vhost} />
      <p class="dim">
        ${count(trace.looked_at)} messages were looked at${trace.is_partial ? "; there was no time for the others" : ""}.
        ${trace.missed.length > 0 && ` ${count(trace.missed.length)} queues could not be read.`}
      </p>`}
  <//>`;
}

const queueLink = (vhost, name) => html`<a href=${link(["queues", vhost, name])}>${name}</a>`;

function Holders({ trace, vhost }) {
  const columns = [
    { title: "Queue", isName: true, cell: (row) => queueLink(vhost, row.queue) },
    { title: "Kind", cell: (row) => (row.is_stream ? "stream: it keeps what was consumed" : "queue: it waits there") },
    { title: "Position", isNumber: true, cell: (row) => count(row.position) },
    { title: "From", cell: (row) => `${row.exchange || "(default)"} with ${row.routing_key}` },
    { title: "Delivered before", cell: (row) => (row.redelivered ? "yes" : "no") },
  ];
  return html`<section class="card">
    <h2>Where it is</h2>
    <${Table} columns=${columns} rows=${trace.held} caption="Where it is" empty="No queue or stream shows it: it was consumed, expired or never came, or a consumer has it now." />
  </section>`;
}

function Deaths({ rows, vhost }) {
  const deaths = rows.flatMap((row) => row.deaths.map((death) => ({ ...death, holder: row.queue })));
  if (deaths.length === 0) return null;
  const columns = [
    { title: "Died in", isName: true, cell: (row) => queueLink(vhost, row.queue) },
    { title: "Of", cell: (row) => html`<span class="tag warn">${row.reason}</span>` },
    { title: "Times", isNumber: true, cell: (row) => count(row.count) },
    { title: "First", cell: (row) => moment((row.time ?? 0) * 1000) },
    { title: "Copy in", isName: true, cell: (row) => row.holder },
  ];
  return html`<section class="card">
    <h2>Its deaths</h2>
    <${Table} columns=${columns} rows=${deaths} caption="Its deaths" />
  </section>`;
}

function Route({ route, vhost }) {
  const exchanges = route.exchanges.map((name) => name || "(default)").join(" → ");
  const joined = route.queues.map((name, place) => html`${place ? ", " : ""}${queueLink(vhost, name)}`);
  return html`<section class="card">
    <h2>Its route</h2>
    <p>
      Published to ${route.exchange || "(default)"} with <code>${route.routing_key}</code>.
      ${" "}Now it would pass ${exchanges || "no exchange"} and go to ${joined.length ? joined : "no queue"}.
    </p>
  </section>`;
}

function Unseen({ rows, vhost }) {
  if (rows.length === 0) return null;
  const columns = [
    { title: "Queue", isName: true, cell: (row) => queueLink(vhost, row.queue) },
    { title: "Unacknowledged", isNumber: true, cell: (row) => count(row.unacknowledged) },
    { title: "Delayed", isNumber: true, cell: (row) => count(row.delayed) },
  ];
  return html`<section class="card">
    <h2>Where it may be, too</h2>
    <p class="dim">These queues have messages that nobody can look at: consumers hold them, or they wait for a time.</p>
    <${Table} columns=${columns} rows=${rows} caption="Where it may be, too" />
  </section>`;
}
