// Dead letters of all queues by reason, source and age; and how they go back to where they died.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { post, query as words } from "../api.js";
import { age, count, path } from "../format.js";
import { useAnswer } from "../live.js";
import { link, refine } from "../route.js";
import { Command } from "../parts/command.js";
import { Dialog, Form } from "../parts/dialog.js";
import { VirtualHostField } from "../parts/fields.js";
import { Browse } from "../parts/messages.js";
import { Progress } from "../parts/progress.js";
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
    <${Browse} vhost=${vhost} name=${name} />
    <${Command} words=${["dead-letters", "list", ...ageOf(query)]} names=${[name]} vhost=${vhost} />`;
}

const ageOf = (query) => optionsOf({ older_than: query.older_than });

// The options of a command line that choose as the fields of a form do.
const optionsOf = (values) => Object.entries(values).flatMap(([name, value]) => (value ? [`--${NAMES[name] ?? name.replace("_", "-")}`, value] : []));

const NAMES = { json: "where" };

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
  const [redriven, redrive] = useState(null); // its row may go before the answer comes
  const close = () => redrive(null);
  return html`<section class="card">
    <${Answered} answer=${answer}>
      ${(found) => html`<${Groups} rows=${found.groups} ...${{ vhost, redrive }} />
        <p class="dim">
          ${count(found.looked_at)} messages were looked at${found.is_partial ? "; there are more" : ""}.
          ${found.missed?.length > 0 && ` ${count(found.missed.length)} queues could not be read.`}
        </p>`}
    <//>
    ${redriven &&
    html`<${Dialog} title=${titleOf(redriven)} onClose=${close}>
      <${Redrive} row=${redriven} olderThan=${query.older_than} vhost=${vhost} onDone=${() => [close(), answer.again()]} />
    <//>`}
  </section>`;
}

const titleOf = (row) => `Redrive from ${row.queue}`;

function Groups({ rows, vhost, redrive }) {
  const columns = [
    { title: "Queue", isName: true, cell: (row) => html`<a href=${link(["dead-letters", vhost, row.queue])}>${row.queue}</a>` },
    { title: "Reason", cell: (row) => html`<span class="tag warn">${row.reason}</span>` },
    { title: "Died in", isName: true, cell: (row) => html`<a href=${link(["queues", vhost, row.source])}>${row.source}</a>` },
    { title: "Messages", isNumber: true, cell: (row) => count(row.messages) },
    { title: "Oldest", cell: (row) => since(row.oldest) },
    { title: "Newest", cell: (row) => since(row.newest) },
    {
      title: "",
      cell: (row) => html`<button aria-label=${titleOf(row)} aria-haspopup="dialog" onClick=${() => redrive(row)}>Redrive</button>`,
    },
  ];
  const keyOf = (row) => [row.queue, row.reason, row.source].join("\n");
  return html`<${Table} columns=${columns} rows=${rows} caption="Dead letters" empty="There are no such dead letters." keyOf=${keyOf} />`;
}

const since = (seconds) => (seconds === null ? "" : age(seconds * 1000));

const numberOf = (text) => (text === "" || text === undefined ? null : Number(text));

// Messages in a piece: it is found or moved at once, and between two pieces it can be cancelled.
const PIECE = 2000;

const NOTHING = { redriven: 0, without_queue: 0, targets: {}, looked_at: 0, left: 0 };

function added(sum, piece) {
  const targets = { ...sum.targets };
  for (const [name, messages] of Object.entries(piece.targets)) targets[name] = (targets[name] ?? 0) + messages;
  return {
    ...sum,
    targets,
    redriven: sum.redriven + piece.redriven,
    without_queue: sum.without_queue + piece.without_queue,
    looked_at: sum.looked_at + piece.looked_at,
    left: piece.left,
  };
}

// A redrive, piece by piece. What was shown is what is moved; without a look before, each piece is moved when it is found.
// A piece that failed is sent again with its id before all others, and goes on where it ended.
function useRedrive(place) {
  const [state, setState] = useState(null);
  const memory = useRef({ id: randomId(), number: 0, pieces: [], underWay: null, isStopped: false, isCut: false, isShown: false, total: 0 }).current;
  const say = (changes) => setState((now) => ({ ...now, ...changes }));
  const find = async function* ({ limit, older_than: seconds, ...filters }) {
    const most = numberOf(limit) ?? Infinity;
    let [start, found] = [0, 0];
    while (start !== null && found < most && !memory.isStopped) {
      const wanted = { ...filters, older_than: numberOf(seconds), start, seconds: 1, limit: Math.min(PIECE, most - found) };
      const piece = await post(place, { ...wanted, dry_run: true });
      [start, found] = [piece.next, found + piece.redriven];
      yield piece;
    }
    memory.isCut = start !== null && found < most; // what is left was not found
  };
  const look = async (values) => {
    Object.assign(memory, { pieces: [], isStopped: false, isCut: false, isShown: false });
    let sum = NOTHING;
    setState({ isBusy: true, sum });
    try {
      for await (const piece of find(values)) {
        memory.pieces.push(piece.ranges);
        say({ sum: (sum = added(sum, piece)) });
      }
      memory.isShown = !memory.isCut;
      memory.total = sum.redriven;
    } finally {
      say({ isBusy: false, isCancelled: memory.isCut });
    }
  };
  const move = async (values) => {
    memory.isStopped = false;
    let sum = NOTHING;
    setState({ isBusy: true, sum, isMoving: true, total: memory.isShown ? memory.total : null });
    const moved = async () => {
      const answer = await post(place, { id: `${memory.id}-${memory.number}`, ranges: memory.underWay });
      memory.underWay = null;
      memory.number += 1;
      say({ sum: (sum = added(sum, { ...answer, looked_at: 0, left: sum.left })) });
    };
    try {
      if (memory.underWay) await moved();
      while (memory.isShown && memory.pieces.length > 0 && !memory.isStopped) {
        memory.underWay = memory.pieces.shift();
        if (memory.underWay.length > 0) await moved();
      }
      memory.isCut = memory.pieces.length > 0;
      if (!memory.isShown) {
        for await (const piece of find(values)) {
          sum = added(sum, { ...piece, redriven: 0, targets: {} });
          memory.underWay = piece.ranges;
          if (piece.ranges.length > 0) await moved();
        }
      }
      return { ...sum, isCancelled: memory.isCut };
    } finally {
      say({ isBusy: false });
    }
  };
  const forget = () => [(memory.isShown = false), setState((now) => (now?.isBusy ? now : null))];
  const cancel = () => (memory.isStopped = true);
  useEffect(() => cancel, []); // who closes the dialog has cancelled it
  return { state, look, move, forget, cancel };
}

const randomId = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (each) => each.toString(16)).join("");

function Redrive({ row, olderThan, vhost, onDone }) {
  const { state, look, move, forget, cancel } = useRedrive(`/shardmq/queues${path(vhost, row.queue)}/redrive`);
  const show = (event) => {
    if (state?.isBusy) return;
    const values = Object.fromEntries(new FormData(event.target.form));
    doing(() => look(values), "Looked at what would happen.");
  };
  const command = (values) => ({ words: ["dead-letters", "redrive", ...optionsOf(values)], names: [row.queue], vhost });
  return html`<${Form} submit="Redrive" command=${command} work=${move} done=${(sum) => said(sum, sum.isCancelled ? "Cancelled; redrove" : "Redrove")} onDone=${onDone}>
    <p>They go to the queues that they died in last, and leave this one. Each of several conditions has to hold.</p>
    <div class="columns" onInput=${forget}>
      <label>Reason <input name="reason" defaultValue=${row.reason} placeholder="any" /></label>
      <label>Died in <input name="source" defaultValue=${row.source} placeholder="any" /></label>
      <label>Routing key <input name="key" placeholder="exact, or with *" /></label>
      <label>Header <input name="header" placeholder="name or name=value" /></label>
      <label>Body has <input name="text" placeholder="any" /></label>
      <label>Body matches <input name="regex" placeholder="regular expression" /></label>
      <label>JSON value <input name="json" placeholder="$.order.total >= 100" /></label>
      <label>Older than, in seconds <input name="older_than" type="number" min="0" defaultValue=${olderThan ?? ""} placeholder="any" /></label>
      <label>At most <input name="limit" type="number" min="1" placeholder="all" /></label>
    </div>
    <div><button type="button" onClick=${show} aria-disabled=${Boolean(state?.isBusy)}>What would happen?</button></div>
    ${state && html`<${Outcome} ...${{ state, cancel }} />`}
  <//>`;
}

function Outcome({ state: { sum, isBusy, isMoving, isCancelled, total }, cancel }) {
  const share = total ? sum.redriven / total : sum.looked_at / Math.max(1, sum.looked_at + sum.left);
  const verb = isMoving ? "Redrove" : isBusy || isCancelled ? "So far it would redrive" : "It would redrive";
  return html`${isBusy && html`<${Progress} label="Done" share=${share} cancel=${cancel} />`}
    <div class="note" role="status" aria-busy=${Boolean(isBusy)}>${said(sum, verb)}${isCancelled ? " Cancelled." : ""}</div>`;
}

function said({ redriven, targets, without_queue: homeless }, verb) {
  const parts = Object.entries(targets).map(([name, messages]) => `${count(messages)} to ${name}`);
  const where = parts.length ? `: ${parts.join(", ")}` : "";
  const rest = homeless ? ` ${count(homeless)} stay: their queue is gone.` : "";
  return `${verb} ${count(redriven)} messages${where}.${rest}`;
}
