// Policies: settings for queues and exchanges by their names, with a look at what each would change.

import { html, useState } from "../vendor/preact.js";
import { post, put, remove } from "../api.js";
import { count, path } from "../format.js";
import { useAnswer } from "../live.js";
import { Command } from "../parts/command.js";
import { ConfirmButton, DialogButton, Form, objectIn, settingsIn } from "../parts/dialog.js";
import { VirtualHostField } from "../parts/fields.js";
import { Answered, Arguments, Head } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { doing } from "../parts/toasts.js";

const KINDS = ["all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams"];

export function Policies({ who }) {
  return html`<${Head} title="Policies" />
    <${Kind} title="Policies" place="policies" mayWrite=${true} command=${["policy", "list"]} />
    <${Kind} title="Operator policies" place="operator-policies" mayWrite=${who.tags.includes("administrator")} command=${["policy", "list", "--operator"]} />`;
}

function Kind({ title, place, mayWrite, command }) {
  const answer = useAnswer(`/${place}`);
  const columns = [
    { title: "Name", isName: true, cell: (row) => row.name },
    { title: "Virtual host", cell: (row) => row.vhost },
    { title: "Pattern", cell: (row) => html`<code>${row.pattern}</code>` },
    { title: "Applies to", cell: (row) => row["apply-to"] },
    { title: "Priority", isNumber: true, cell: (row) => count(row.priority) },
    { title: "Definition", cell: (row) => html`<${Arguments} values=${row.definition} />` },
    { title: "", cell: (row) => mayWrite && html`<${Change} row=${row} place=${place} again=${answer.again} />` },
  ];
  return html`<section class="card">
    <h2>${title}</h2>
    <${Answered} answer=${answer}>
      ${(value) => html`<${Table} columns=${columns} rows=${value.items ?? value} caption=${title} keyOf=${(row) => `${row.vhost}\n${row.name}`} />`}
    <//>
    ${mayWrite &&
    html`<p>
      <${DialogButton} label="Set a policy">${(close) => html`<${Edit} place=${place} onDone=${() => [close(), answer.again()]} />`}<//>
    </p>`}
    <${Command} words=${command} />
  </section>`;
}

function Change({ row, place, again }) {
  return html`<div class="actions">
    <${DialogButton} label="Edit" title=${`Edit ${row.name}`}>
      ${(close) => html`<${Edit} row=${row} place=${place} onDone=${() => [close(), again()]} />`}
    <//>
    <${ConfirmButton}
      label="Delete"
      title=${`Delete ${row.name}`}
      name=${row.name}
      text="What it applied to goes back to its own arguments, or to the next policy that matches."
      command=${{ words: ["policy", "delete", ...kindOf(place)], names: [row.name], vhost: row.vhost }}
      work=${() => remove(`/${place}${path(row.vhost, row.name)}`)}
      done=${`Deleted ${row.name}.`}
      onDone=${again}
    />
  </div>`;
}

const kindOf = (place) => (place === "policies" ? [] : ["--operator"]);

const wanted = (values) => ({
  pattern: values.pattern,
  definition: objectIn(values.definition),
  priority: Number(values.priority) || 0,
  "apply-to": values.kind,
});

function Edit({ row, place, onDone }) {
  const [preview, setPreview] = useState(null);
  const work = (values) => put(`/${place}${path(row?.vhost ?? values.vhost, row?.name ?? values.name)}`, wanted(values));
  const command = (values) => ({
    words: ["policy", "set", ...kindOf(place), "--priority", values.priority || "0", "--apply-to", values.kind],
    names: [row?.name ?? values.name, values.pattern, ...settingsIn(values.definition)],
    vhost: row?.vhost ?? values.vhost,
  });
  const look = (event) => {
    const values = Object.fromEntries(new FormData(event.target.form));
    doing(async () => {
      const name = row?.name ?? values.name;
      setPreview(await post(`/shardmq/${place}${path(row?.vhost ?? values.vhost, name || "new")}/preview`, wanted(values)));
    }, "Looked at what would change.");
  };
  return html`<${Form} submit="Set" work=${work} done="Set the policy." onDone=${onDone} command=${command}>
    ${!row && html`<div class="columns"><label>Name <input name="name" required autofocus /></label><${VirtualHostField} /></div>`}
    <div class="columns">
      <label>Pattern of names <input name="pattern" defaultValue=${row?.pattern ?? ""} required /></label>
      <label>Applies to <select name="kind">${KINDS.map((kind) => html`<option selected=${kind === row?.["apply-to"]}>${kind}</option>`)}</select></label>
      <label>Priority <input name="priority" type="number" defaultValue=${row?.priority ?? 0} /></label>
    </div>
    <label>Definition, as JSON <textarea name="definition" required>${row ? JSON.stringify(row.definition, null, 2) : '{"max-length": 100000}'}</textarea></label>
    <div><button type="button" onClick=${look}>What would change?</button></div>
    ${preview && html`<${Preview} preview=${preview} />`}
  <//>`;
}

function Preview({ preview }) {
  const columns = [
    { title: "Kind", cell: (row) => row.kind },
    { title: "Name", isName: true, cell: (row) => row.name },
    { title: "Policy now", cell: (row) => row.policy_before ?? "" },
    { title: "Policy then", cell: (row) => row.policy ?? "" },
    { title: "Changes", cell: (row) => Object.entries(row.changes ?? {}).map(([name, [before, after]]) => html`<div><code>${name}: ${shown(before)} → ${shown(after)}</code></div>`) },
  ];
  return html`<${Table} columns=${columns} rows=${preview} caption="What would change" empty="Nothing would change." />`;
}

const shown = (value) => (value === null || value === undefined ? "none" : JSON.stringify(value));
