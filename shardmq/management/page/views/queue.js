// One queue: what waits in it and why, who consumes it, where its messages come from, and what is in them.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { post, remove } from "../api.js";
import { age, bytes, count, duration, path, rate, rateOf } from "../format.js";
import { useAnswer } from "../live.js";
import { go, link } from "../route.js";
import { BindingsTable } from "../parts/bindings.js";
import { Chart } from "../parts/chart.js";
import { Command } from "../parts/command.js";
import { ConfirmButton, DialogButton, Form } from "../parts/dialog.js";
import { useHistory } from "../parts/history.js";
import { Findings } from "../parts/findings.js";
import { Browse } from "../parts/messages.js";
import { Progress } from "../parts/progress.js";
import { Publish } from "../parts/publish.js";
import { samplesOf, SpanChoice } from "../parts/span.js";
import { Answered, Arguments, Facts, Figures, Head } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { Features, State } from "./queues.js";

const FLOWS = [
  ["publish", "in"],
  ["deliver_get", "out"],
  ["ack", "acknowledged"],
  ["redeliver", "delivered again"],
];

const READ = [
  ["ready", (queue) => queue.messages_ready],
  ["unacknowledged", (queue) => queue.messages_unacknowledged],
  ...FLOWS.map(([counter]) => [counter, (queue) => queue.message_stats?.[counter]]),
];

export function Queue({ parts: [vhost, name], query }) {
  const place = `/queues${path(vhost, name)}`;
  const answer = useAnswer(`${place}${samplesOf(query, "lengths", "msg_rates")}`);
  return html`<${Head} title=${name}>
      <span class="dim">queue in ${vhost}</span>
      ${answer.value && html`<${State} row=${answer.value} /> <${Features} row=${answer.value} />`}
      <span class="grow"></span><${SpanChoice} query=${query} />
    <//>
    <${Findings} isQuiet=${answer.value === null || reasonsOf(answer.value).length > 0} only=${(finding) => isAbout(finding, vhost, name, answer.value)} />
    <${Answered} answer=${answer}>
      ${(queue) => html`<${Shown} queue=${queue} place=${place} again=${answer.again} />`}
    <//>`;
}

const isAbout = (finding, vhost, name, queue) =>
  (finding.vhost === vhost && finding.name === name) || (finding.rule === "shard-away" && queue?.state === "down" && finding.name === `shard-${queue.shard}`);

function Shown({ queue, place, again }) {
  const { vhost, name } = queue;
  const history = useHistory(queue, READ);
  const depths = [
    { title: "ready", samples: history("ready", queue.messages_ready_details?.samples) },
    { title: "unacknowledged", samples: history("unacknowledged", queue.messages_unacknowledged_details?.samples) },
  ];
  const seenOf = (counter) => history(counter, queue.message_stats?.[`${counter}_details`]?.samples);
  const flows = FLOWS.map(([counter, title]) => ({ title, samples: seenOf(counter), isTotal: true }));
  return html`<${Reasons} queue=${queue} />
    <section class="card">
      <${Figures}
        rows=${[
          ["Ready", count(queue.messages_ready)],
          ["Unacknowledged", count(queue.messages_unacknowledged)],
          ["Bytes", bytes(queue.message_bytes)],
          ["Consumers", count(queue.consumers)],
          ...FLOWS.map(([counter, title]) => [title[0].toUpperCase() + title.slice(1), rate(rateOf(queue, counter))]),
        ]}
      />
    </section>
    <div class="cards"><${Chart} title="Messages" series=${depths} /><${Chart} title="Messages a second" series=${flows} format=${rate} /></div>
    <section class="card">
      <h2>Settings</h2>
      <${Facts}
        rows=${[
          ["Type", queue.type],
          ["Durable", queue.durable ? "yes" : "no, it is gone after a restart"],
          ["Shard", queue.shard ?? queue.node],
          ["Arguments", html`<${Arguments} values=${queue.arguments} />`],
          ["Policy", queue.policy ?? html`<span class="dim">none</span>`],
          queue.operator_policy && ["Operator policy", queue.operator_policy],
          Object.keys(queue.effective_policy_definition ?? {}).length > 0 && ["From policies", html`<${Arguments} values=${queue.effective_policy_definition} />`],
        ]}
      />
    </section>
    <${Consumers} rows=${queue.consumer_details ?? []} ...${{ vhost, name }} />
    <${Bindings} vhost=${vhost} name=${name} place=${place} />
    <${Browse} vhost=${vhost} name=${name} keeps=${queue.type === "stream"} onChange=${again} />
    <${Publish} vhost=${vhost} exchange="amq.default" routingKey=${name} isKeyFixed=${true} onDone=${again} />
    <${Actions} queue=${queue} place=${place} again=${again} />`;
}

// Why messages wait, from what the queue itself says.
function Reasons({ queue }) {
  const said = reasonsOf(queue);
  return said.map((text) => html`<div class=${`note ${text === STATES[queue.state] ? "bad" : "warn"}`}>${text}</div>`);
}

const STATES = {
  down: "Its shard does not answer: nobody gets its messages, and what is published to it is refused, until the shard is back. What is stored stays. `shardmq up` starts a shard that has ended by itself; why it ended or hangs is in the log.",
  crashed:
    "It is out of service: something that is stored of it is damaged. Nobody gets its messages, and what is published to it is refused, until it is repaired: stop the broker, see with `shardmq store check` what is damaged, restore a copy or `shardmq store repair`.",
};

function reasonsOf(queue) {
  const { messages_ready: ready = 0, messages_unacknowledged: unacked = 0, consumers = 0 } = queue;
  const out = rateOf(queue, "deliver_get") ?? 0;
  const into = rateOf(queue, "publish") ?? 0;
  const details = queue.consumer_details ?? [];
  const said = [];
  if (STATES[queue.state]) said.push(STATES[queue.state]);
  if (ready > 0 && consumers === 0) said.push(`${count(ready)} messages wait, and nobody consumes this queue.`);
  const isFull = details.length > 0 && details.every((one) => one.prefetch_count > 0 && (one.unacked ?? 0) >= one.prefetch_count);
  if (ready > 0 && isFull) {
    const oldest = Math.max(...details.map((one) => one.oldest_unacked_ms ?? 0));
    said.push(`All consumers have as many unacknowledged messages as their prefetch allows${oldest ? `; the oldest for ${duration(oldest)}` : ""}. They have to acknowledge, or a larger prefetch.`);
  } else if (ready > 0 && consumers > 0 && out === 0 && unacked > 0) {
    said.push(`${count(unacked)} messages are with consumers and not acknowledged, and nothing is delivered.`);
  }
  if (ready > 1000 && into > 0 && into > out * 1.1) said.push(`More comes in (${rate(into)}) than goes out (${rate(out)}).`);
  return said;
}

// How long messages are with a consumer before it acknowledges or rejects them.
function Latency({ row: { ack_required: isAsked, ack_latency_ms: half, ack_latency_ms_max: most } }) {
  if (!isAsked) return html`<span class="dim">never: it need not</span>`;
  if (half === undefined) return html`<span class="dim">not yet known</span>`;
  return html`${duration(half)} <small class="dim">at most ${duration(most)}</small>`;
}

function Consumers({ rows, vhost, name }) {
  const columns = [
    { title: "Consumer", isName: true, cell: (row) => html`<code>${row.consumer_tag}</code>` },
    { title: "Prefetch", isNumber: true, cell: (row) => (row.prefetch_count ? count(row.prefetch_count) : "no limit") },
    { title: "Unacked", isNumber: true, cell: (row) => count(row.unacked) },
    { title: "Oldest unacked", isNumber: true, cell: (row) => (row.oldest_unacked_ms === undefined ? "" : duration(row.oldest_unacked_ms)) },
    { title: "Acknowledges after", isNumber: true, cell: (row) => html`<${Latency} row=${row} />` },
    { title: "Active", cell: (row) => (row.active === false ? "waits" : "yes") },
    {
      title: "Connection",
      cell: (row) => html`<a href=${link(["connections", row.channel_details?.connection_name ?? ""])}>${row.channel_details?.connection_name}</a>`,
    },
    { title: "Channel", isNumber: true, cell: (row) => count(row.channel_details?.number) },
  ];
  return html`<section class="card">
    <h2>Consumers</h2>
    <${Table} columns=${columns} rows=${rows} caption="Consumers" keyOf=${(row) => [row.channel_details?.name, row.consumer_tag].join("\n")} empty="Nobody consumes this queue." />
    <${Command} words=${["consumer", "list", "--queue", name]} vhost=${vhost} />
  </section>`;
}

function Bindings({ vhost, name, place }) {
  const answer = useAnswer(`${place}/bindings`);
  return html`<section class="card">
    <h2>Bindings</h2>
    <${Answered} answer=${answer}>
      ${(rows) => html`<${BindingsTable} rows=${rows} side="source" vhost=${vhost} destination=${{ type: "q", name }} again=${answer.again} />`}
    <//>
  </section>`;
}

function Actions({ queue, place, again }) {
  const { vhost, name } = queue;
  return html`<section class="card">
    <h2>Actions</h2>
    <div class="actions">
      <a class="button" href=${link(["dead-letters", vhost, name])}>Dead letters in it</a>
      <${DialogButton} label="Move messages">
        ${(close) => html`<${Move} queue=${queue} onDone=${() => [close(), again()]} />`}
      <//>
      <${ConfirmButton}
        label="Purge"
        title=${`Purge ${name}`}
        name=${name}
        text=${`All ${count(queue.messages_ready)} ready messages are deleted. What consumers have stays with them.`}
        command=${{ words: ["queue", "purge"], names: [name], vhost }}
        work=${() => remove(`${place}/contents`)}
        done=${`Purged ${name}.`}
        onDone=${again}
      />
      <${ConfirmButton}
        label="Delete"
        title=${`Delete ${name}`}
        name=${name}
        text=${`The queue is deleted with its ${count(queue.messages)} messages, its bindings and its consumers.`}
        command=${{ words: ["queue", "delete"], names: [name], vhost }}
        work=${() => remove(place)}
        done=${`Deleted ${name}.`}
        onDone=${() => go(["queues"])}
      />
    </div>
    <p class="dim">${usedOf(queue)}</p>
  </section>`;
}

// When it was used, and how long what is in it has waited.
function usedOf(queue) {
  const { head_message_timestamp: head, oldest_unacked_ms: unacked } = queue;
  const said = [`Last used ${queue.idle_since ? age(Date.parse(queue.idle_since)) : "now"}.`];
  if (head !== undefined) said.push(`The message at the head came ${age(1000 * head)}.`);
  if (unacked !== undefined) said.push(`The oldest unacknowledged message is ${duration(unacked)} old.`);
  return said.join(" ");
}

// Messages in a piece: between two pieces a move can be cancelled.
const PIECE = 2000;

// A move, piece by piece: so many messages as were ready when it began, or fewer. Returns how many were moved.
async function moveAll(place, { to, limit }, memory, say) {
  let [moved, total] = [0, Number(limit) || Infinity];
  while (moved < total && !memory.isStopped) {
    const piece = await post(`${place}/move`, { to, limit: Math.min(PIECE, total - moved) });
    if (moved === 0) total = Math.min(total, piece.moved + piece.left);
    moved += piece.moved;
    say({ moved, total });
    if (piece.moved === 0) break; // others have the rest
  }
  return moved;
}

function Move({ queue, onDone }) {
  const { vhost, name } = queue;
  const [state, setState] = useState(null);
  const memory = useRef({ isStopped: false }).current;
  const work = async (values) => {
    memory.isStopped = false;
    setState({ moved: 0, total: queue.messages_ready });
    try {
      return await moveAll(`/shardmq/queues${path(vhost, name)}`, values, memory, setState);
    } finally {
      setState(null);
    }
  };
  const done = (moved) => `${memory.isStopped ? "Cancelled; moved" : "Moved"} ${count(moved)} messages.`;
  const cancel = () => (memory.isStopped = true);
  useEffect(() => cancel, []); // who closes the dialog has cancelled it
  const command = (values) => ({ words: ["queue", "move", ...(values.limit ? ["--count", values.limit] : [])], names: [name, values.to || "OTHER"], vhost });
  return html`<${Form} submit="Move" work=${work} done=${done} onDone=${onDone} command=${command}>
    <label>To the queue <input name="to" required autofocus /></label>
    <label>At most <input name="limit" type="number" min="1" placeholder="all" /></label>
    ${state &&
    html`<${Progress} label="Moved" share=${state.moved / Math.max(1, state.total)} cancel=${cancel} />
      <div class="note">Moved ${count(state.moved)} of ${count(state.total)} messages so far.</div>`}
  <//>`;
}
