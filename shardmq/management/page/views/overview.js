// Is the broker well? How much goes through it, what waits in it, and which processes it is made of.

import { html } from "../vendor/preact.js";
import { bytes, count, rate, rateOf } from "../format.js";
import { useAnswer } from "../live.js";
import { link } from "../route.js";
import { Chart, Meter } from "../parts/chart.js";
import { Command } from "../parts/command.js";
import { useHistory } from "../parts/history.js";
import { useLatency } from "../parts/latency.js";
import { samplesOf, SpanChoice } from "../parts/span.js";
import { Answered, Figures, Head } from "../parts/states.js";
import { Findings } from "../parts/findings.js";

const RATES = [
  ["publish", "published"],
  ["deliver_get", "delivered"],
  ["ack", "acknowledged"],
  ["confirm", "confirmed"],
];

const READ = [
  ["ready", (overview) => overview.queue_totals?.messages_ready],
  ["unacknowledged", (overview) => overview.queue_totals?.messages_unacknowledged],
  ...RATES.map(([counter]) => [counter, (overview) => overview.message_stats?.[counter]]),
];

export function Overview({ who, query }) {
  const answer = useAnswer(`/overview${samplesOf(query, "lengths", "msg_rates")}`);
  return html`<${Head} title="Overview"><span class="grow"></span><${SpanChoice} query=${query} /><//>
    <${Findings} />
    <${Answered} answer=${answer}>${(overview) => html`<${Shown} overview=${overview} who=${who} query=${query} />`}<//>
    <${Command} words=${["status"]} />`;
}

function Shown({ overview, who, query }) {
  const totals = overview.queue_totals ?? {};
  const stats = overview.message_stats ?? {};
  const objects = overview.object_totals ?? {};
  const history = useHistory(overview, READ);
  const latency = useLatency(overview.confirm_times?.counts);
  const depths = [
    { title: "ready", samples: history("ready", totals.messages_ready_details?.samples) },
    { title: "unacknowledged", samples: history("unacknowledged", totals.messages_unacknowledged_details?.samples) },
  ];
  const flows = RATES.map(([counter, title]) => ({ title, samples: history(counter, stats[`${counter}_details`]?.samples), isTotal: true }));
  const { away = [] } = overview;
  return html`${away.length > 0 &&
    html`<div class="note bad" role="alert">${away.join(", ")} ${away.length > 1 ? "do not answer: their queues are not in these numbers, and wait for them." : "does not answer: its queues are not in these numbers, and wait for it."}</div>`}
    <section class="card">
      <${Figures}
        rows=${[
          ["Ready", count(totals.messages_ready)],
          ["Unacknowledged", count(totals.messages_unacknowledged)],
          ...RATES.map(([counter, title]) => [capital(title), rate(rateOf(overview, counter))]),
          latency && ["Confirms take", latency.half, `99 %: ${latency.most}`],
          ["Queues", html`<a href="#/queues">${count(objects.queues)}</a>`],
          ["Exchanges", html`<a href="#/exchanges">${count(objects.exchanges)}</a>`],
          ["Connections", html`<a href="#/connections">${count(objects.connections)}</a>`],
          ["Channels", count(objects.channels)],
          ["Consumers", count(objects.consumers)],
        ]}
      />
    </section>
    <div class="cards">
      <${Chart} title="Messages in queues" series=${depths} />
      <${Chart} title="Messages a second" series=${flows} format=${rate} />
    </div>
    <${Nodes} who=${who} query=${query} />
    <${Busiest} />
    <section class="card">
      <h2>Listeners</h2>
      <div class="scroll"><table>
        <thead><tr><th>Protocol</th><th>Address</th><th class="number">Port</th></tr></thead>
        <tbody>${(overview.listeners ?? []).map((one) => html`<tr><td>${one.protocol}</td><td>${one.ip_address}</td><td class="number">${one.port}</td></tr>`)}</tbody>
      </table></div>
      <p class="dim">shardmq ${overview.product_version}, as RabbitMQ ${overview.rabbitmq_version} for clients of its HTTP API.</p>
    </section>`;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

// Memory and disk against their watermarks.
function Nodes({ who, query }) {
  const isSeen = who.tags.includes("monitoring") || who.tags.includes("administrator");
  const answer = useAnswer(isSeen ? `/nodes${samplesOf(query, "node_stats")}` : null);
  if (!isSeen || !answer.value) return null;
  return answer.value.map(
    (node) => html`<section class="card">
      <h2>Machine <span class="dim">${node.name}</span> ${node.mem_alarm && html`<span class="tag bad">memory alarm</span>`} ${node.disk_free_alarm && html`<span class="tag bad">disk alarm</span>`}</h2>
      <dl class="figures">
        <div>
          <dt>Memory of the broker</dt>
          <dd>
            ${bytes(node.mem_used)} <small>of ${bytes(node.mem_limit)}</small>
            <${Meter} value=${node.mem_used} limit=${node.mem_limit} isAlarm=${node.mem_alarm} label="Memory used of the watermark" />
          </dd>
        </div>
        <div>
          <dt>Free disk</dt>
          <dd>${bytes(node.disk_free)} <small>alarm below ${bytes(node.disk_free_limit)}</small></dd>
        </div>
        <div><dt>Open files</dt><dd>${count(node.fd_used)} <small>of ${count(node.fd_total)}</small></dd></div>
        <div><dt>Cores</dt><dd>${count(node.processors)}</dd></div>
      </dl>
    </section>
    <div class="cards">
      <${Chart} title="Memory of the broker" series=${[{ title: "used", samples: node.mem_used_details?.samples }]} format=${bytes} />
      <${Chart} title="Free disk" series=${[{ title: "free", samples: node.disk_free_details?.samples }]} format=${bytes} />
    </div>`,
  );
}

function Busiest() {
  const words = "page=1&page_size=5&sort=messages&sort_reverse=true&columns=name,vhost,messages,consumers";
  const { value } = useAnswer(`/queues?${words}`);
  if (!value || value.items.length === 0) return null;
  return html`<section class="card">
    <h2>Fullest queues</h2>
    <div class="scroll"><table>
      <thead><tr><th>Queue</th><th>Virtual host</th><th class="number">Messages</th><th class="number">Consumers</th></tr></thead>
      <tbody>
        ${value.items.map(
          (row) => html`<tr>
            <td class="name"><a href=${link(["queues", row.vhost, row.name])}>${row.name}</a></td>
            <td>${row.vhost}</td>
            <td class="number">${count(row.messages)}</td>
            <td class="number">${count(row.consumers)}</td>
          </tr>`,
        )}
      </tbody>
    </table></div>
  </section>`;
}
