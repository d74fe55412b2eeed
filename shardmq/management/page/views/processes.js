// The processes of the broker: memory, processor time, what each of them does.

import { html } from "../vendor/preact.js";
import { bytes, count, duration } from "../format.js";
import { useAnswer } from "../live.js";
import { Command } from "../parts/command.js";
import { Findings } from "../parts/findings.js";
import { Hosts, RULES as OF_HOSTS } from "../parts/hosts.js";
import { Answered, Head } from "../parts/states.js";
import { Table } from "../parts/table.js";

const RULES = ["shard-away", "disk-slow", "alarm", ...OF_HOSTS]; // what is told of processes; one that is away has no row

export function Processes({ who }) {
  const answer = useAnswer("/shardmq/processes");
  const columns = [
    { title: "Process", isName: true, cell: (row) => row.process },
    { title: "Role", cell: (row) => row.role },
    { title: "Host", cell: (row) => row.host },
    { title: "State", cell: (row) => html`<${Alarms} row=${row} />` },
    { title: "Memory", isNumber: true, cell: (row) => bytes(row.rss_bytes) },
    { title: "CPU", isNumber: true, cell: (row) => (row.cpu_percent === null || row.cpu_percent === undefined ? "–" : `${row.cpu_percent} %`) },
    { title: "Up for", isNumber: true, cell: (row) => duration((row.uptime_seconds ?? 0) * 1000) },
    { title: "Process id", isNumber: true, cell: (row) => row.pid },
    { title: "Connections", isNumber: true, cell: (row) => (row.role === "gateway" ? count(row.connections) : "–") },
    { title: "Stored", isNumber: true, cell: (row) => (row.store ? bytes(row.store.used_bytes) : "–") },
    { title: "Its file", isNumber: true, cell: (row) => (row.store ? bytes(row.store.file_bytes) : "–") },
  ];
  return html`<${Head} title="Processes" />
    <${Findings} isQuiet=${true} only=${({ rule }) => RULES.includes(rule)} />
    ${isOnSeveralHosts(answer.value) && html`<${Hosts} who=${who} />`}
    <section class="card">
      <${Answered} answer=${answer}>
        ${(value) => html`<${Table} columns=${columns} rows=${value.items ?? value} caption="Processes" keyOf=${(row) => row.process} />`}
      <//>
    </section>
    <${Command} words=${["status"]} />`;
}

// In such a broker processes are named after their hosts; on one host nothing more is asked for.
const isOnSeveralHosts = (value) => (value?.items ?? value ?? []).some((row) => row.role === "gateway" && row.process.startsWith(`${row.host}.`));

function Alarms({ row }) {
  const alarms = row.alarms ?? [];
  if (alarms.length === 0) return html`<span class="tag good">well</span>`;
  return alarms.map((alarm) => html`<span class="tag bad">${alarm}</span>`);
}
