// Topics and their consumer groups: partitions, lag, who reads what, and groups that are reset.

import { html } from "../vendor/preact.js";
import { post, put, remove } from "../api.js";
import { age, bytes, count, path } from "../format.js";
import { useAnswer } from "../live.js";
import { go, link } from "../route.js";
import { Command } from "../parts/command.js";
import { ConfirmButton, DialogButton, Form } from "../parts/dialog.js";
import { VirtualHostField } from "../parts/fields.js";
import { Browse } from "../parts/messages.js";
import { Publish } from "../parts/publish.js";
import { Answered, Arguments, Figures, Head } from "../parts/states.js";
import { Table } from "../parts/table.js";

const itemsOf = (value) => value.items ?? value;

export function Topics() {
  const topics = useAnswer("/shardmq/topics");
  const groups = useAnswer("/shardmq/groups");
  const columns = [
    { title: "Topic", isName: true, cell: (row) => html`<a href=${link(["topics", row.vhost, row.name])}>${row.name}</a>` },
    { title: "Virtual host", cell: (row) => row.vhost },
    { title: "Partitions", isNumber: true, cell: (row) => count(row.partitions) },
    { title: "Arguments", cell: (row) => html`<${Arguments} values=${row.arguments} />` },
  ];
  return html`<${Head} title="Topics and groups" />
    <div class="tools"><${Declare} again=${topics.again} /></div>
    <section class="card">
      <h2>Topics</h2>
      <${Answered} answer=${topics}>${(value) => html`<${Table} columns=${columns} rows=${itemsOf(value)} caption="Topics" keyOf=${(row) => `${row.vhost}\n${row.name}`} empty="There are no topics yet." />`}<//>
    </section>
    <section class="card">
      <h2>Groups</h2>
      <${Answered} answer=${groups}>${(value) => html`<${Groups} rows=${itemsOf(value)} />`}<//>
    </section>
    <${Command} words=${["group", "list"]} />`;
}

const within = (what, partitions) => (partitions?.length ? [`${what} in partition ${partitions.join(", ")}`] : []);

// Where a group is out of service, and of which partitions its numbers are without, as these do not answer.
const stateOf = ({ damaged, unknown }) => [...within("damaged", damaged), ...within("not known", unknown)].join("; ");

function Groups({ rows }) {
  const columns = [
    { title: "Group", isName: true, cell: (row) => row.group ?? row.name },
    { title: "Topic", cell: (row) => html`<a href=${link(["topics", row.vhost, row.topic])}>${row.topic}</a>` },
    { title: "Kind", cell: (row) => row.type },
    { title: "State", cell: stateOf },
    { title: "Members", isNumber: true, cell: (row) => count(row.members ?? row.consumers) },
    { title: "Lag", isNumber: true, cell: (row) => count(row.lag) },
    { title: "Unacked", isNumber: true, cell: (row) => count(row.unacked) },
  ];
  return html`<${Table} columns=${columns} rows=${rows} caption="Groups" keyOf=${(row) => [row.vhost, row.topic, row.group].join("\n")} empty="No group reads a topic." />`;
}

function Declare({ again }) {
  const work = (values) => put(`/shardmq/topics${path(values.vhost, values.name)}`, { partitions: Number(values.partitions) });
  const command = (values) => ({
    words: ["topic", "declare", "--partitions", values.partitions],
    names: [values.name],
    vhost: values.vhost,
  });
  return html`<${DialogButton} label="Declare a topic">
    ${(close) => html`<${Form} submit="Declare" work=${work} done="Declared the topic." onDone=${() => [close(), again()]} command=${command}>
      <div class="columns">
        <label>Name <input name="name" required autofocus /></label>
        <${VirtualHostField} />
        <label>Partitions <input name="partitions" type="number" min="1" max="10000" defaultValue="4" required /></label>
      </div>
    <//>`}
  <//>`;
}

export function Topic({ parts: [vhost, name] }) {
  const place = `/shardmq/topics${path(vhost, name)}`;
  const answer = useAnswer(place);
  return html`<${Head} title=${name}><span class="dim">topic in ${vhost}</span><//>
    <${Answered} answer=${answer}>${(topic) => html`<${Shown} topic=${topic} vhost=${vhost} name=${name} place=${place} again=${answer.again} />`}<//>`;
}

const sum = (rows, column) => rows.reduce((all, row) => all + (row[column] ?? 0), 0);

function Shown({ topic, vhost, name, place, again }) {
  const partitions = topic.partitions ?? [];
  return html`<section class="card">
      <${Figures}
        rows=${[
          ["Partitions", count(partitions.length)],
          ["Messages", count(sum(partitions, "messages"))],
          ["Bytes", bytes(sum(partitions, "bytes"))],
        ]}
      />
    </section>
    <${Unknown} rows=${partitions} vhost=${vhost} />
    <section class="card">
      <h2>Groups</h2>
      <${GroupLags} topic=${topic} vhost=${vhost} name=${name} again=${again} />
    </section>
    <section class="card">
      <h2>Partitions</h2>
      <${Partitions} rows=${partitions} vhost=${vhost} />
    </section>
    <${Browse} vhost=${vhost} name=${name} kind="topics" />
    <${Publish} vhost=${vhost} exchange=${name} onDone=${again} />
    <${ConfirmButton}
      label="Delete the topic"
      name=${name}
      text="The topic is deleted with all its messages and the offsets of its groups."
      command=${{ words: ["topic", "delete"], names: [name], vhost }}
      work=${() => remove(place)}
      done=${`Deleted ${name}.`}
      onDone=${() => go(["topics"])}
    />
    <${Command} words=${["topic", "info"]} names=${[name]} vhost=${vhost} />`;
}

const nameOf = (row, vhost) => html`<a href=${link(["queues", vhost, row.queue])}>${row.partition}</a>`;

// Partitions of which nothing is known: the numbers are without them.
function Unknown({ rows, vhost }) {
  const unknown = rows.filter((row) => row.groups === null);
  if (unknown.length === 0) return null;
  const shown = unknown.slice(0, 20).map((row, place) => html`${place ? ", " : ""}${nameOf(row, vhost)}`);
  return html`<div class="note bad">
    <p role="alert">${unknown.length === 1 ? "A partition does" : `${count(unknown.length)} partitions do`} not answer: the numbers here are without ${unknown.length === 1 ? "it" : "them"}, and nobody reads or publishes there.</p>
    <p>Why, since when and what to do is told there: ${shown}${unknown.length > 20 ? " …" : ""}</p>
  </div>`;
}

// Who reads a partition. A member is called after its connection.
function Readers({ groups, vhost }) {
  if (!groups) return html`<span class="dim">not known</span>`;
  return groups.map(({ group, member, consumers, lag, unacked, is_damaged: isDamaged }) => {
    const who = member ? html`<a href=${link(["connections", member.replace(/\.[0-9]+$/, "")])}>${member}</a>` : consumers ? `${count(consumers)} members` : "nobody";
    const how = isDamaged ? "damaged" : `lag ${count(lag)}${unacked ? `, ${count(unacked)} unacked` : ""}`;
    return html`<div>${group}: ${who} <span class="dim">${how}</span></div>`;
  });
}

function Partitions({ rows, vhost }) {
  const columns = [
    { title: "Partition", isNumber: true, cell: (row) => nameOf(row, vhost) },
    { title: "Shard", cell: (row) => row.shard },
    { title: "First offset", isNumber: true, cell: (row) => count(row.first) },
    { title: "Next offset", isNumber: true, cell: (row) => count(row.next) },
    { title: "Messages", isNumber: true, cell: (row) => count(row.messages) },
    { title: "Bytes", isNumber: true, cell: (row) => bytes(row.bytes) },
    { title: "Oldest", cell: (row) => (row.oldest_ms ? age(row.oldest_ms) : "") },
    { title: "Read by", cell: (row) => html`<${Readers} groups=${row.groups} vhost=${vhost} />` },
  ];
  return html`<${Table} columns=${columns} rows=${rows} caption="Partitions" keyOf=${(row) => row.partition} />`;
}

function GroupLags({ topic, vhost, name, again }) {
  const groups = new Map();
  for (const row of topic.groups ?? []) {
    const key = row.group ?? row.name;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const rows = [...groups].map(([group, parts]) => ({ group, lag: sum(parts, "lag"), unacked: sum(parts, "unacked"), members: new Set(parts.map((row) => row.member).filter(Boolean)).size, damaged: parts.flatMap((row) => row.damaged ?? []) }));
  const columns = [
    { title: "Group", isName: true, cell: (row) => row.group },
    { title: "State", cell: stateOf },
    { title: "Members", isNumber: true, cell: (row) => count(row.members) },
    { title: "Lag", isNumber: true, cell: (row) => count(row.lag) },
    { title: "Unacked", isNumber: true, cell: (row) => count(row.unacked) },
    {
      title: "",
      cell: (row) => html`<${DialogButton} label="Reset" title=${`Reset ${row.group}`}>
        ${(close) => html`<${Reset} vhost=${vhost} topic=${name} group=${row.group} onDone=${() => [close(), again()]} />`}
      <//>`,
    },
  ];
  return html`<${Table} columns=${columns} rows=${rows} caption="Groups" keyOf=${(row) => row.group} empty="No group reads this topic." />`;
}

function Reset({ vhost, topic, group, onDone }) {
  const work = (values) =>
    post(`/shardmq/groups${path(vhost, topic, group)}/reset`, { to: values.to, dry_run: Boolean(values.dry) });
  const command = (values) => ({
    words: ["group", "reset", "--to", values.to, ...(values.dry ? ["--dry-run"] : [])],
    names: [topic, group],
    vhost,
  });
  const said = (answer) => (answer.dry_run ? `It would read ${count(answer.messages)} messages again or skip them.` : `Reset ${group}.`);
  return html`<${Form} submit="Reset" work=${work} done=${said} onDone=${onDone} command=${command}>
    <label>To <select name="to"><option value="earliest">the beginning</option><option value="latest">the end</option></select></label>
    <label class="check"><input type="checkbox" name="dry" defaultChecked />Dry run: say what would change, and change nothing</label>
  <//>`;
}
