// Messages of a queue, looked at without a trace: they stay where they are, and nobody sees that they were read.

import { html, useState } from "../vendor/preact.js";
import { get, query } from "../api.js";
import { age, bytes, count, path } from "../format.js";
import { Command } from "./command.js";
import { decoded, FORMS } from "./decoding.js";
import { Arguments, Facts, Fault } from "./states.js";

const COUNT = 20;

export function Browse({ vhost, name }) {
  const [filters, setFilters] = useState({ start: 0, key: "", header: "", text: "" });
  const [state, setState] = useState(null);
  const look = async (next) => {
    setFilters(next);
    setState({ isBusy: true });
    try {
      const words = query({ ...next, count: COUNT });
      setState({ page: await get(`/shardmq/queues${path(vhost, name)}/messages${words}`) });
    } catch (fault) {
      setState({ fault });
    }
  };
  const submit = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.target));
    look({ ...values, start: Math.max(0, Number(values.start) || 0) });
  };
  return html`<section class="card">
    <h2>Messages</h2>
    <form class="columns" onSubmit=${submit}>
      <label>From position <input name="start" type="number" min="0" defaultValue=${filters.start} /></label>
      <label>Routing key has <input name="key" defaultValue=${filters.key} /></label>
      <label>A header has <input name="header" defaultValue=${filters.header} /></label>
      <label>Body has <input name="text" defaultValue=${filters.text} /></label>
      <div><button class="primary">Look</button></div>
    </form>
    <p class="dim">Looking changes nothing: messages keep their places, and none counts as delivered.</p>
    ${state?.fault && html`<${Fault} fault=${state.fault} />`} ${state?.isBusy && html`<p class="dim">Looking…</p>`}
    ${state?.page && html`<${Page} page=${state.page} more=${(start) => look({ ...filters, start })} />`}
    <${Command} words=${["queue", "peek"]} names=${[name]} vhost=${vhost} />
  </section>`;
}

function Page({ page, more }) {
  const { messages, next, looked_at: seen } = page;
  return html`${messages.length === 0
      ? html`<p class="empty">None of the ${count(seen)} messages looked at fits.</p>`
      : messages.map((message) => html`<${Message} message=${message} />`)}
    <div class="pages">
      <span>${count(messages.length)} shown, ${count(seen)} looked at</span>
      ${next !== null && next !== undefined && html`<button onClick=${() => more(next)}>Look further</button>`}
    </div>`;
}

function Message({ message }) {
  const [form, setForm] = useState(null);
  const raw = Uint8Array.from(atob(message.payload_base64), (letter) => letter.charCodeAt(0));
  const shown = decoded(raw, message.properties ?? {}, form);
  const headers = message.properties?.headers ?? {};
  return html`<details class="card">
    <summary>
      <code>${message.routing_key}</code> <span class="dim">from ${message.exchange || "(default)"}, ${bytes(message.payload_bytes)}</span>
      ${message.redelivered && html`<span class="tag warn">delivered before</span>`}
      <span class="dim"> ${firstLine(shown)}</span>
    </summary>
    <${Facts}
      rows=${[
        ["Position", count(message.position)],
        ...Object.entries(message.properties ?? {})
          .filter(([key]) => key !== "headers")
          .map(([key, value]) => [key, key === "timestamp" ? `${value} (${age(value * 1000)})` : String(value)]),
        ["headers", html`<${Arguments} values=${headers} />`],
      ]}
    />
    <p>
      Body as
      ${FORMS.map((each) => html` <button class=${each === shown.form ? "primary" : ""} onClick=${() => setForm(each)}>${each}</button>`)}
      ${message.is_truncated && html`<span class="dim"> the beginning alone</span>`}
    </p>
    <pre>${shown.text}</pre>
  </details>`;
}

const firstLine = ({ text }) => text.slice(0, 90).replaceAll(/\s+/g, " ");
