// Transactions that nobody has decided about: whose, since when, what is staged for them; one can be given up.

import { html } from "../vendor/preact.js";
import { remove } from "../api.js";
import { bytes, count, duration, path } from "../format.js";
import { useAnswer } from "../live.js";
import { Command } from "../parts/command.js";
import { ConfirmButton } from "../parts/dialog.js";
import { Answered, Head } from "../parts/states.js";
import { Table } from "../parts/table.js";

export function Transactions() {
  const answer = useAnswer("/shardmq/transactions");
  const columns = [
    { title: "Name", isName: true, cell: (row) => row.name },
    { title: "Virtual host", cell: (row) => row.vhost },
    { title: "User", cell: (row) => row.user },
    { title: "Staged messages", isNumber: true, cell: (row) => count(row.messages) },
    { title: "Staged bytes", isNumber: true, cell: (row) => bytes(row.bytes) },
    { title: "Idle for", isNumber: true, cell: (row) => duration(row.idle_ms) },
    { title: "Aborted after", isNumber: true, cell: (row) => duration(row.timeout_ms) },
    { title: "", cell: (row) => html`<${Abort} row=${row} again=${answer.again} />` },
  ];
  return html`<${Head} title="Transactions" />
    <section class="card">
      <p class="dim">What is published in a transaction is staged: nobody sees it before the commit. Until then it takes room.</p>
      <${Answered} answer=${answer}>
        ${(rows) => html`<${Table} columns=${columns} rows=${rows} caption="Transactions" empty="None is undecided." keyOf=${(row) => `${row.vhost}\n${row.name}`} />`}
      <//>
    </section>
    <${Command} words=${["transaction", "list"]} />`;
}

function Abort({ row: { vhost, name }, again }) {
  return html`<${ConfirmButton}
    label="Abort"
    title=${`Abort ${name}`}
    name=${name}
    text="What was published in it never appears, and what it would have acknowledged goes back to its queues."
    command=${{ words: ["transaction", "abort"], names: [name], vhost }}
    work=${() => remove(`/shardmq/transactions${path(vhost, name)}`)}
    done=${`Aborted ${name}.`}
    onDone=${again}
  />`;
}
