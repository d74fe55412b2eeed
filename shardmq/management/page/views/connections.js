// Who is connected: connections, and one of them with its channels; closing with a reason.

import { html } from "../vendor/preact.js";
import { remove } from "../api.js";
import { age, bytes, count, moment, path, rate } from "../format.js";
import { useAnswer } from "../live.js";
import { go, link } from "../route.js";
import { Chart } from "../parts/chart.js";
import { Command } from "../parts/command.js";
import { DialogButton, Form } from "../parts/dialog.js";
import { samplesOf, SpanChoice } from "../parts/span.js";
import { Answered, Facts, Head } from "../parts/states.js";
import { PagedTable, Table } from "../parts/table.js";

function State({ value }) {
  const kind = value === "running" ? "good" : value === "blocked" || value === "blocking" ? "bad" : "plain";
  return html`<span class=${`tag ${kind}`}>${value}</span>`;
}

export function Connections({ query }) {
  const columns = [
    { title: "Name", sort: "name", isName: true, cell: (row) => html`<a href=${link(["connections", row.name])}>${row.client_properties?.connection_name ?? row.name}</a>` },
    { title: "User", sort: "user", cell: (row) => row.user },
    { title: "Virtual host", sort: "vhost", cell: (row) => row.vhost },
    { title: "State", sort: "state", cell: (row) => html`<${State} value=${row.state} />` },
    { title: "Protocol", sort: "protocol", cell: (row) => html`${row.protocol} ${row.ssl && html`<span class="tag plain">TLS</span>`}` },
    { title: "Client", cell: (row) => [row.client_properties?.product, row.client_properties?.version].filter(Boolean).join(" ") },
    { title: "Channels", sort: "channels", isNumber: true, cell: (row) => count(row.channels) },
    { title: "In", sort: "recv_oct_details.rate", isNumber: true, cell: (row) => octets(row.recv_oct_details) },
    { title: "Out", sort: "send_oct_details.rate", isNumber: true, cell: (row) => octets(row.send_oct_details) },
    { title: "Since", sort: "connected_at", cell: (row) => age(row.connected_at) },
  ];
  return html`<${Head} title="Connections" />
    <${PagedTable} path="/connections" columns=${columns} query=${query} caption="Connections" keyOf=${(row) => row.name} empty="Nobody is connected." />
    <${Command} words=${["connection", "list"]} />`;
}

const octets = (details) => (details ? `${bytes(details.rate)}/s` : "–");

export function Connection({ parts: [name], query }) {
  const place = `/connections${path(name)}`;
  const answer = useAnswer(`${place}${samplesOf(query, "data_rates")}`);
  const channels = useAnswer(`${place}/channels`);
  return html`<${Head} title=${name}><span class="dim">connection</span><span class="grow"></span><${SpanChoice} query=${query} /><//>
    <${Answered} answer=${answer}>
      ${(row) => html`<section class="card">
          <${Facts}
            rows=${[
              ["State", html`<${State} value=${row.state} />`],
              ["User", row.user],
              ["Virtual host", row.vhost],
              ["Protocol", `${row.protocol}${row.ssl ? " with TLS" : ""}`],
              ["From", `${row.peer_host}:${row.peer_port}`],
              ["Since", `${moment(row.connected_at)}, ${age(row.connected_at)}`],
              ...Object.entries(row.client_properties ?? {})
                .filter(([key]) => key !== "capabilities")
                .map(([key, value]) => [key, typeof value === "object" ? JSON.stringify(value) : String(value)]),
            ]}
          />
        </section>
        <div class="cards"><${Chart} title="Bytes a second" series=${octetsOf(row)} format=${(value) => `${bytes(value)}/s`} /></div>
        <section class="card">
          <h2>Channels</h2>
          <${Answered} answer=${channels}>${(rows) => html`<${Channels} rows=${rows} />`}<//>
        </section>
        <${DialogButton} label="Close the connection" kind="danger">
          ${(close) => html`<${Close} place=${place} name=${name} close=${close} />`}
        <//>`}
    <//>`;
}

const octetsOf = (row) => [
  { title: "from the client", samples: row.recv_oct_details?.samples, isTotal: true },
  { title: "to the client", samples: row.send_oct_details?.samples, isTotal: true },
];

const prefetchOf = ({ prefetch_count: each, global_prefetch_count: all }) =>
  [each && count(each), all && `${count(all)} (global)`].filter(Boolean).join(", ") || "no limit";

function Channels({ rows }) {
  const columns = [
    { title: "Channel", isNumber: true, cell: (row) => count(row.number) },
    { title: "State", cell: (row) => html`<${State} value=${row.state} />` },
    { title: "Mode", cell: (row) => [row.confirm && "confirms", row.transactional && "transactions"].filter(Boolean).join(", ") },
    { title: "Consumers", isNumber: true, cell: (row) => count(row.consumer_count) },
    { title: "Prefetch", isNumber: true, cell: (row) => prefetchOf(row) },
    { title: "Unacked", isNumber: true, cell: (row) => count(row.messages_unacknowledged) },
    { title: "Unconfirmed", isNumber: true, cell: (row) => count(row.messages_unconfirmed) },
    { title: "Published", isNumber: true, cell: (row) => rate(row.message_stats?.publish_details?.rate) },
    { title: "Delivered", isNumber: true, cell: (row) => rate(row.message_stats?.deliver_get_details?.rate) },
  ];
  return html`<${Table} columns=${columns} rows=${rows} caption="Channels" keyOf=${(row) => row.number} />`;
}

function Close({ place, name, close }) {
  const work = (values) => remove(place, { headers: { "X-Reason": values.reason } });
  const onDone = () => {
    close();
    go(["connections"]);
  };
  return html`<${Form} submit="Close it" work=${work} done="Closed the connection." onDone=${onDone} command=${(values) => ({ words: ["connection", "close", "--reason", values.reason], names: [name] })}>
    <p>Clients that recover connect again at once.</p>
    <label>Reason, which the client is told <input name="reason" defaultValue="closed on the management page" required autofocus /></label>
  <//>`;
}
