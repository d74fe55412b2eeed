// Virtual hosts, with what is in each and its limits.

import { html } from "../vendor/preact.js";
import { put, remove } from "../api.js";
import { count, path, rate, rateOf } from "../format.js";
import { useAnswer } from "../live.js";
import { Command } from "../parts/command.js";
import { ConfirmButton, DialogButton, Form } from "../parts/dialog.js";
import { Answered, Head } from "../parts/states.js";
import { Table } from "../parts/table.js";

export function VirtualHosts({ who }) {
  const answer = useAnswer("/vhosts");
  const limits = useAnswer("/vhost-limits");
  const mayWrite = who.tags.includes("administrator");
  const limitsOf = (name) => (limits.value ?? []).find?.((row) => row.vhost === name)?.value ?? {};
  const columns = [
    { title: "Name", isName: true, cell: (row) => row.name },
    { title: "Description", cell: (row) => row.description },
    { title: "Ready", isNumber: true, cell: (row) => count(row.messages_ready) },
    { title: "Unacked", isNumber: true, cell: (row) => count(row.messages_unacknowledged) },
    { title: "In", isNumber: true, cell: (row) => rate(rateOf(row, "publish")) },
    { title: "Out", isNumber: true, cell: (row) => rate(rateOf(row, "deliver_get")) },
    { title: "Limits", cell: (row) => Object.entries(limitsOf(row.name)).map(([name, value]) => `${name}: ${value}`).join(", ") },
    { title: "Tracing", cell: (row) => (row.tracing ? `on, ${row.trace_sample}` : "off") },
    { title: "", cell: (row) => mayWrite && html`<${Delete} name=${row.name} again=${answer.again} />` },
  ];
  return html`<${Head} title="Virtual hosts" />
    ${mayWrite && html`<div class="tools"><${Add} again=${answer.again} /></div>`}
    <section class="card">
      <${Answered} answer=${answer}>
        ${(value) => html`<${Table} columns=${columns} rows=${value.items ?? value} caption="Virtual hosts" keyOf=${(row) => row.name} />`}
      <//>
    </section>
    <${Command} words=${["vhost", "list"]} />`;
}

function Delete({ name, again }) {
  return html`<${ConfirmButton}
    label="Delete"
    title=${`Delete ${name}`}
    name=${name}
    text="The virtual host is deleted with all its queues, messages, exchanges and permissions."
    command=${{ words: ["vhost", "delete"], names: [name] }}
    work=${() => remove(`/vhosts${path(name)}`)}
    done=${`Deleted ${name}.`}
    onDone=${again}
  />`;
}

function Add({ again }) {
  const work = (values) => put(`/vhosts${path(values.name)}`, { description: values.description });
  return html`<${DialogButton} label="Add a virtual host">
    ${(close) => html`<${Form} submit="Add" work=${work} done="Added the virtual host." onDone=${() => [close(), again()]} command=${(values) => ({ words: ["vhost", "add", "--description", values.description], names: [values.name] })}>
      <label>Name <input name="name" required autofocus /></label>
      <label>Description <input name="description" /></label>
    <//>`}
  <//>`;
}
