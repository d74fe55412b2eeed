// Shovels, which move messages: how each is doing, from where to where; adding, restarting and deleting them.

import { html, useState } from "../vendor/preact.js";
import { put, remove } from "../api.js";
import { age, count, moment, path } from "../format.js";
import { useAnswer } from "../live.js";
import { go, link } from "../route.js";
import { Command } from "../parts/command.js";
import { ConfirmButton, DialogButton, Form } from "../parts/dialog.js";
import { VirtualHostField } from "../parts/fields.js";
import { Answered, Facts, Head } from "../parts/states.js";
import { PagedTable } from "../parts/table.js";
import { doing } from "../parts/toasts.js";

const HERE = /^amqps?:\/{0,3}$/;
const [QUEUE, EXCHANGE, OWN] = ["a queue", "an exchange", "their own exchange"];
const COLOURS = { running: "good", starting: "plain", terminated: "bad" };

const mayWrite = (who) => who.tags.some((tag) => tag === "policymaker" || tag === "administrator");

const State = ({ value }) => html`<span class=${`tag ${COLOURS[value] ?? "plain"}`}>${value}</span>`;

function End({ row, side }) {
  const [uri, queue, exchange] = [row[`${side}_uri`] ?? "", row[`${side}_queue`], row[`${side}_exchange`]];
  const what = queue !== undefined ? `queue ${queue}` : exchange ? `exchange ${exchange}` : exchange === "" ? "the exchange of each message" : "not known";
  return html`${what} ${uri && !HERE.test(uri) && html`<div class="dim mono">${uri}</div>`}`;
}

export function Shovels({ query, who }) {
  const columns = [
    { title: "Name", sort: "name", isName: true, cell: (row) => html`<a href=${link(["shovels", row.vhost, row.name])}>${row.name}</a>` },
    { title: "Virtual host", sort: "vhost", cell: (row) => row.vhost },
    { title: "State", sort: "state", cell: (row) => html`<${State} value=${row.state} />` },
    { title: "From", sort: "src_queue", cell: (row) => html`<${End} row=${row} side="src" />` },
    { title: "To", sort: "dest_queue", cell: (row) => html`<${End} row=${row} side="dest" />` },
    { title: "Moved", sort: "moved", isNumber: true, cell: (row) => count(row.moved) },
    { title: "Since", sort: "since", cell: (row) => age(row.since) },
    { title: "What went wrong last", sort: "reason", isName: true, cell: (row) => row.reason ?? "" },
  ];
  const tools = (again) =>
    mayWrite(who) &&
    html`<${DialogButton} label="Add a shovel">${(close) => html`<${Add} onDone=${() => [close(), again()]} />`}<//>`;
  return html`<${Head} title="Shovels" />
    <${PagedTable} path="/shovels" columns=${columns} query=${query} caption="Shovels" keyOf=${(row) => `${row.vhost}\n${row.name}`} empty="There are none." tools=${tools} />
    <${Command} words=${["shovel", "list"]} />`;
}

export function Shovel({ parts: [vhost, name], who }) {
  const place = `/shovels/vhost${path(vhost, name)}`;
  const answer = useAnswer(place);
  const restart = () => doing(() => remove(`${place}/restart`), `Restarted ${name}.`).then(answer.again);
  return html`<${Head} title=${name}><span class="dim">shovel in ${vhost}</span><//>
    <${Answered} answer=${answer}>
      ${(row) => html`${
          mayWrite(who) && // above what comes and goes, so that it stays under the mouse
          html`<div class="actions">
            <button onClick=${restart}>Restart</button>
            <${ConfirmButton}
              label="Delete"
              title=${`Delete ${name}`}
              name=${name}
              text="It moves nothing more. What it has not moved stays where it is."
              command=${{ words: ["shovel", "delete"], names: [name], vhost }}
              work=${() => remove(place)}
              done=${`Deleted ${name}.`}
              onDone=${() => go(["shovels"])}
            />
          </div>`
        }
        <section class="card">
          <${Facts}
            rows=${[
              ["State", html`<${State} value=${row.state} />`],
              row.since && ["Since", `${moment(row.since)}, ${age(row.since)}`],
              ["From", html`<${End} row=${row} side="src" />`],
              row.src_exchange_key && ["Binding key", html`<code>${row.src_exchange_key}</code>`],
              ["To", html`<${End} row=${row} side="dest" />`],
              row.dest_exchange_key && ["Routing key", html`<code>${row.dest_exchange_key}</code>`],
              ["Moved", `${count(row.moved)} since it began`],
              row.reason && [row.state === "running" ? "What went wrong last" : "Why it does not run", row.reason],
            ]}
          />
        </section>
        ${mayWrite(who) && html`<${Command} words=${["shovel", "restart"]} names=${[name]} vhost=${vhost} />`}`}
    <//>`;
}

// The URI of a broker, with the user and password that have fields of their own.
function uriOf(values, side, password) {
  if (values[`${side}-broker`] === "this one") {
    const vhost = values[`${side}-vhost`] ?? "/";
    return vhost === "/" ? "amqp://" : `amqp:///${encodeURIComponent(vhost)}`;
  }
  const user = values[`${side}-user`];
  const login = user ? `${encodeURIComponent(user)}${password ? `:${encodeURIComponent(password)}` : ""}@` : "";
  return (values[`${side}-uri`] ?? "").trim().replace("://", `://${login}`);
}

function settingsOf(values) {
  const uri = (side) => uriOf(values, side, values[`${side}-password`]);
  const source = values["src-kind"] === QUEUE ? { "src-queue": values.source } : { "src-exchange": values.source, "src-exchange-key": values.binding };
  const exchange = { "dest-exchange": values.destination, ...(values.key && { "dest-exchange-key": values.key }) };
  const destination = { [QUEUE]: { "dest-queue": values.destination }, [EXCHANGE]: exchange, [OWN]: {} }[values["dest-kind"]];
  const ends = values.ends && { "src-delete-after": Number(values.ends) || values.ends };
  return { "src-uri": uri("src"), ...source, "dest-uri": uri("dest"), ...destination, ...ends, "ack-mode": values.mode };
}

// The command line, where others can see it, has the word PASSWORD in place of one.
function commandOf(values) {
  const option = (name, value) => (value ? [name, value] : []);
  const broker = (name, side) => {
    const uri = uriOf(values, side, values[`${side}-password`] && "PASSWORD").replace(/(:\/\/[^/@:]*):[^/@]*@/, "$1:PASSWORD@");
    return uri === "amqp://" ? [] : [name, uri];
  };
  const source = values["src-kind"] === QUEUE ? option("--queue", values.source) : [...option("--exchange", values.source), ...option("--binding-key", values.binding)];
  const exchange = [...option("--to-exchange", values.destination), ...option("--routing-key", values.key)];
  const destination = { [QUEUE]: option("--to-queue", values.destination), [EXCHANGE]: exchange, [OWN]: [] }[values["dest-kind"]];
  const others = [...option("--delete-after", values.ends), ...(values.mode === "on-confirm" ? [] : ["--ack-mode", values.mode])];
  const words = ["shovel", "add", ...broker("--from", "src"), ...source, ...broker("--to", "dest"), ...destination, ...others];
  return { words, names: values.name ? [values.name] : [], vhost: values.vhost };
}

function Add({ onDone }) {
  const work = (values) => put(`/parameters/shovel${path(values.vhost, values.name)}`, { value: settingsOf(values) });
  return html`<${Form} submit="Add" work=${work} done="Added the shovel." onDone=${onDone} command=${commandOf}>
    <div class="columns"><label>Name <input name="name" required autofocus /></label><${VirtualHostField} /></div>
    <${Side} side="src" title="From" kinds=${[QUEUE, EXCHANGE]} />
    <${Side} side="dest" title="To" kinds=${[QUEUE, EXCHANGE, OWN]} />
    <div class="columns">
      <label>It ends after <input name="ends" placeholder="never, queue-length or a number" pattern="never|queue-length|[1-9][0-9]*" /></label>
      <label>Acknowledges <select name="mode"><option>on-confirm</option><option>on-publish</option><option>no-ack</option></select></label>
    </div>
  <//>`;
}

function Side({ side, title, kinds }) {
  const [kind, setKind] = useState(kinds[0]);
  const [isHere, setHere] = useState(true);
  const isSource = side === "src";
  return html`<fieldset>
    <legend>${title}</legend>
    <div class="columns">
      <label>Kind <select name=${`${side}-kind`} onChange=${(event) => setKind(event.target.value)}>${kinds.map((each) => html`<option>${each}</option>`)}</select></label>
      ${kind !== OWN && html`<label>Name of it <input name=${isSource ? "source" : "destination"} required /></label>`}
      ${kind === EXCHANGE && html`<label>${isSource ? "Binding key" : "Routing key"} <input name=${isSource ? "binding" : "key"} placeholder=${isSource ? "" : "their own"} /></label>`}
    </div>
    <div class="columns">
      <label>Broker <select name=${`${side}-broker`} onChange=${(event) => setHere(event.target.value === "this one")}><option>this one</option><option>another</option></select></label>
      ${isHere
        ? html`<${VirtualHostField} name=${`${side}-vhost`} />`
        : html`<label>Address <input name=${`${side}-uri`} required pattern="(amqp|shardmq)s?://.+" placeholder="amqps://broker.example/vhost" /></label>
            <label>User <input name=${`${side}-user`} autocomplete="off" /></label>
            <label>Password <input name=${`${side}-password`} type="password" autocomplete="new-password" /></label>`}
    </div>
  </fieldset>`;
}
