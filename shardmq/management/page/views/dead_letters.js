// Dead letters of all queues by reason, source and age; and how they go back to where they died.

import { html, useState } from "../vendor/preact.js";
import { post, query as words } from "../api.js";
import { age, count, path } from "../format.js";
import { useAnswer } from "../live.js";
import { link, refine } from "../route.js";
import { Command } from "../parts/command.js";
import { DialogButton, Form } from "../parts/dialog.js";
import { VirtualHostField } from "../parts/fields.js";
import { Answered, Head } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { doing } from "../parts/toasts.js";

const AGES = [
  ["", "of any age"],
  ["3600", "older than an hour"],
  ["86400", "older than a day"],
  ["604800", "older than a week"],
];

export function DeadLetters({ query }) {
  const vhost = query.vhost ?? "/";
  const choose = ({ target: { name, value } }) => refine({ [name]: value });
  return html`<${Head} title="Dead letters" />
    <div class="tools" onChange=${choose}>
      <${VirtualHostField} value=${vhost} />
      <${AgeField} value=${query.older_than} />
    </div>
    <${Found} place=${`/shardmq/dead-letters${path(vhost)}`} vhost=${vhost} query=${query} />
    <${Command} words=${["dead-letters", "list", ...ageOf(query)]} vhost=${vhost} />`;
}

export function DeadLettersOf({ parts: [vhost, name], query }) {
  return html`<${Head} title=${`Dead letters in ${name}`}><span class="dim">queue in ${vhost}</span><//>
    <div class="tools" onChange=${({ target }) => refine({ older_than: target.value })}>
      <${AgeField} value=${query.older_than} />
      <a class="button" href=${link(["dead-letters"], { vhost })}>Those of all queues</a>
    </div>
    <${Found} place=${`/shardmq/queues${path(vhost, name)}/dead-letters`} vhost=${vhost} query=${query} />
    <${Command} words=${["dead-letters", "list", ...ageOf(query)]} names=${[name]} vhost=${vhost} />`;
}

const ageOf = (query) => optionsOf({ older_than: query.older_than });

// The options of a command line that choose as the fields of a form do.
const optionsOf = (values) => Object.entries(values).flatMap(([name, value]) => (value ? [`--${name.replace("_", "-")}`, value] : []));

function AgeField({ value = "" }) {
  return html`<label
    >Age
    <select name="older_than">
      ${AGES.map(([seconds, title]) => html`<option value=${seconds} selected=${seconds === value}>${title}</option>`)}
    </select>
  </label>`;
}

function Found({ place, vhost, query }) {
  const answer = useAnswer(`${place}${words({ older_than: query.older_than })}`);
  return html`<section class="card">
    <${Answered} answer=${answer}>
      ${(found) => html`<${Groups} rows=${found.groups} ...${{ vhost, query, again: answer.again }} />
        <p class="dim">
          ${count(found.looked_at)} messages were looked at${found.is_partial ? "; there are more" : ""}.
          ${found.missed?.length > 0 && ` ${count(found.missed.length)} queues could not be read.`}
        </p>`}
    <//>
  </section>`;
}

function Groups({ rows, vhost, query, again }) {
  const columns = [
    { title: "Queue", isName: true, cell: (row) => html`<a href=${link(["dead-letters", vhost, row.queue])}>${row.queue}</a>` },
    { title: "Reason", cell: (row) => html`<span class="tag warn">${row.reason}</span>` },
    { title: "Died in", isName: true, cell: (row) => html`<a href=${link(["queues", vhost, row.source])}>${row.source}</a>` },
    { title: "Messages", isNumber: true, cell: (row) => count(row.messages) },
    { title: "Oldest", cell: (row) => since(row.oldest) },
    { title: "Newest", cell: (row) => since(row.newest) },
    {
      title: "",
      cell: (row) => html`<${DialogButton} label="Redrive" title=${`Redrive from ${row.queue}`}>
        ${(close) => html`<${Redrive} row=${row} olderThan=${query.older_than} vhost=${vhost} onDone=${() => [close(), again()]} />`}
      <//>`,
    },
  ];
  const keyOf = (row) => [row.queue, row.reason, row.source].join("\n");
  return html`<${Table} columns=${columns} rows=${rows} caption="Dead letters" empty="There are no such dead letters." keyOf=${keyOf} />`;
}

const since = (seconds) => (seconds === null ? "" : age(seconds * 1000));

const numberOf = (text) => (text === "" || text === undefined ? null : Number(text));

// A redrive that fails is sent again with the same id, and goes on where it ended.
function useId() {
  const [id] = useState(() => Array.from(crypto.getRandomValues(new Uint8Array(12)), (each) => each.toString(16)).join(""));
  return id;
}

function Redrive({ row, olderThan, vhost, onDone }) {
  const [outcome, setOutcome] = useState(null);
  const id = useId();
  const send = ({ limit, older_than: seconds, ...filters }, more) =>
    post(`/shardmq/queues${path(vhost, row.queue)}/redrive`, { ...filters, limit: numberOf(limit), older_than: numberOf(seconds), ...more });
  const look = (event) => {
    const values = Object.fromEntries(new FormData(event.target.form));
    doing(async () => setOutcome(await send(values, { dry_run: true })), "Looked at what would happen.");
  };
  const command = (values) => ({ words: ["dead-letters", "redrive", ...optionsOf(values)], names: [row.queue], vhost });
  return html`<${Form} submit="Redrive" command=${command} work=${(values) => send(values, { id })} done=${(answer) => said(answer, "Redrove")} onDone=${onDone}>
    <p>They go to the queues that they died in last, and leave this one. Each of several conditions has to hold.</p>
    <div class="columns">
      <label>Reason <input name="reason" defaultValue=${row.reason} placeholder="any" /></label>
      <label>Died in <input name="source" defaultValue=${row.source} placeholder="any" /></label>
      <label>Routing key has <input name="key" placeholder="any" /></label>
      <label>A header has <input name="header" placeholder="any" /></label>
      <label>Body has <input name="text" placeholder="any" /></label>
      <label>Older than, in seconds <input name="older_than" type="number" min="0" defaultValue=${olderThan ?? ""} placeholder="any" /></label>
      <label>At most <input name="limit" type="number" min="1" placeholder="all" /></label>
    </div>
    <div><button type="button" onClick=${look}>What would happen?</button></div>
    ${outcome && html`<div class="note">${said(outcome, "It would redrive")}</div>`}
  <//>`;
}

function said(answer, verb) {
  const targets = Object.entries(answer.targets).map(([name, messages]) => `${count(messages)} to ${name}`);
  const where = targets.length ? `: ${targets.join(", ")}` : "";
  const rest = answer.without_queue ? ` ${count(answer.without_queue)} stay: their queue is gone.` : "";
  return `${verb} ${count(answer.redriven)} messages${where}.${rest}`;
}
