// The hosts of a broker on several, and its shards and coordinator as groups of replicas.

import { html } from "../vendor/preact.js";
import { post } from "../api.js";
import { bytes, count, path } from "../format.js";
import { useAnswer } from "../live.js";
import { Command } from "./command.js";
import { ConfirmButton, DialogButton, Form } from "./dialog.js";
import { Answered } from "./states.js";
import { Table } from "./table.js";
import { doing } from "./toasts.js";

export const RULES = ["host-away", "group-unled", "replicas-too-few", "replicas-alone", "replica-incomplete", "replica-behind", "format-held", "etcd-away"];

const KIND = { up: "good", "in sync": "good", away: "bad", stopped: "warn", draining: "warn", stopping: "warn", joining: "warn", "catching up": "warn" };

const HOSTS = [
  { title: "Host", isName: true, cell: (row) => row.host },
  { title: "State", cell: (row) => html`<${State} state=${row.state} />` },
  { title: "Leads", isNumber: true, cell: (row) => count(row.leads) },
  { title: "Replicas", isNumber: true, cell: (row) => count(row.replicas) },
  { title: "In sync", isNumber: true, cell: (row) => count(row.in_sync) },
  { title: "Clients connect to", cell: (row) => row.gateway },
  { title: "Labels", cell: (row) => Object.entries(row.labels).map(([name, value]) => `${name}=${value}`).join(", ") },
];

const GROUPS = [
  { title: "Shard", isName: true, cell: (row) => row.group },
  { title: "Led by", cell: (row) => row.primary || "nobody" },
  { title: "Term", isNumber: true, cell: (row) => count(row.term) },
  { title: "In sync", cell: (row) => row.in_sync.join(", ") },
  { title: "State", cell: (row) => html`<span class=${`tag ${row.state === "whole" ? "good" : "warn"}`}>${row.state}</span>` },
  { title: "Followers", cell: (row) => row.followers.map((each) => html`<div key=${each.host}>${each.host} <${State} state=${each.state} /> ${behind(each)}</div>`) },
];

export function Hosts({ who }) {
  const answer = useAnswer("/shardmq/hosts");
  const mayChange = who.tags.includes("administrator");
  const does = (cell) => (mayChange ? [{ title: "", cell }] : []);
  return html`<${Answered} answer=${answer}>
    ${({ hosts, groups }) => html`<section class="card">
        <h2>Hosts</h2>
        <${Table} columns=${[...HOSTS, ...does((row) => html`<${Drain} host=${row} onDone=${answer.again} />`)]} rows=${hosts} caption="Hosts" keyOf=${(row) => row.host} />
        <${Command} words=${["host", "list"]} />
      </section>
      <section class="card">
        <h2>Shards and their replicas</h2>
        <${Table} columns=${[...GROUPS, ...does((row) => html`<${Place} group=${row} hosts=${hosts} onDone=${answer.again} />`)]} rows=${groups} caption="Shards and their replicas" keyOf=${(row) => row.group} />
        <${Command} words=${["shard", "list"]} />
      </section>`}
  <//>`;
}

function Drain({ host: { host, is_draining: isDraining }, onDone }) {
  const place = `/shardmq/hosts${path(host)}/drain`;
  if (isDraining) {
    const undo = () => doing(() => post(place, { undo: true }), `Host ${host} may have replicas again.`).then(onDone);
    return html`<button aria-label=${`Undo the drain of ${host}`} onClick=${undo}>Undo the drain</button>`;
  }
  return html`<${ConfirmButton}
    label="Drain"
    title=${`Drain ${host}`}
    name=${host}
    text="All its replicas move to other hosts, and others lead what it leads. The broker goes on; afterwards the host can be stopped and removed."
    command=${{ words: ["host", "drain"], names: [host] }}
    work=${() => post(place)}
    done=${`Draining host ${host}.`}
    onDone=${onDone}
  />`;
}

// Who leads a shard, and where its replicas are.
function Place({ group: { group, primary, in_sync: inSync, replicas }, hosts, onDone }) {
  const place = `/shardmq/shards${path(group)}`;
  const heirs = inSync.filter((name) => name !== primary);
  const targets = hosts.filter((row) => row.state === "up" && !replicas.includes(row.host)).map((row) => row.host);
  return html`<div class="actions">
    ${heirs.length > 0 &&
    html`<${DialogButton} label="Transfer" title=${`Transfer ${group}`}>
      ${(close) => html`<${Form}
        submit="Transfer"
        work=${({ host }) => post(`${place}/transfer`, { host })}
        done=${`Handing ${group} over.`}
        onDone=${() => [close(), onDone()]}
        command=${({ host }) => ({ words: ["shard", "transfer"], names: [group, host] })}
      >
        <p>${primary} leads it now. Publishes wait for a moment.</p>
        <${Choice} label="Have it led by" name="host" values=${heirs} />
      <//>`}
    <//>`}
    ${targets.length > 0 &&
    html`<${DialogButton} label="Move" title=${`Move ${group}`}>
      ${(close) => html`<${Form}
        submit="Move"
        work=${(values) => post(`${place}/move`, values)}
        done=${`Moving ${group}.`}
        onDone=${() => [close(), onDone()]}
        command=${({ from, to }) => ({ words: ["shard", "move"], names: [group, from, to] })}
      >
        <p>The new replica copies the whole shard before the old one goes.</p>
        <${Choice} label="From" name="from" values=${replicas} />
        <${Choice} label="To" name="to" values=${targets} />
      <//>`}
    <//>`}
  </div>`;
}

const Choice = ({ label, name, values }) => html`<label>${label} <select name=${name}>${values.map((each) => html`<option>${each}</option>`)}</select></label>`;

function State({ state }) {
  return html`<span class=${`tag ${KIND[state] ?? "plain"}`}>${state}</span>`;
}

// How far a follower is behind, in words.
function behind({ records, seconds, bytes: unread, joined_percent: percent, silent_seconds: silent, state }) {
  if (percent !== null) return `${percent} %`;
  if (state === "away") return silent === null ? "" : `for ${count(Math.round(silent))} s`;
  if (records === null) return "";
  if (records === 0) return "has all";
  return `${count(records)} records, ${seconds} s behind${unread === null ? "" : `, ${bytes(unread)} to read`}`;
}
