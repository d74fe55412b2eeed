// Messages of a queue, stream or topic, searched without a trace: they stay where they are, and nobody sees that they were read.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, query } from "../api.js";
import { age, bytes, count, moment, path } from "../format.js";
import { link } from "../route.js";
import { Command } from "./command.js";
import { CopyButton } from "./copying.js";
import { decoded, FORMS } from "./decoding.js";
import { bytesOf } from "./editing.js";
import { Progress } from "./progress.js";
import { RedriveButton } from "./redriving.js";
import { Arguments, Facts, Fault } from "./states.js";

const COUNT = 20;

// Args: kind: "queues" or "topics"; vhost, name: of what is searched; keeps: whether it keeps what was consumed;
// onChange: is called when a message was sent on from here.
export function Browse({ vhost, name, kind = "queues", keeps = kind === "topics", onChange }) {
  const [filters, setFilters] = useState({});
  const [state, look, cancel] = useSearch(`/shardmq/${kind}${path(vhost, name)}/messages`);
  const submit = (event) => {
    event.preventDefault();
    if (state?.isBusy) return;
    const { start, since, ...others } = Object.fromEntries(new FormData(event.target));
    const chosen = { ...others, start: Math.max(0, Number(start) || 0), since: since ? new Date(since).getTime() : "" };
    setFilters(chosen);
    look(chosen, { partition: 0, start: chosen.start });
  };
  return html`<section class="card">
    <h2>Messages</h2>
    <form class="columns" onSubmit=${submit}>
      <label>From position <input name="start" type="number" min="0" defaultValue="0" /></label>
      <label>Received since <input name="since" type="datetime-local" step="1" /></label>
      <label>Routing key <input name="key" placeholder="exact, or with *" /></label>
      <label>Header <input name="header" placeholder="name or name=value" /></label>
      <label>Body has <input name="text" /></label>
      <label>Body matches <input name="regex" placeholder="regular expression" /></label>
      <label>JSON value <input name="json" placeholder="$.order.total >= 100" /></label>
      <div><button class="primary" aria-disabled=${Boolean(state?.isBusy)}>Look</button></div>
    </form>
    <p class="dim">Looking changes nothing: messages keep their places, and none counts as delivered.</p>
    ${state && html`<${Result} of=${{ kind, vhost, name, keeps, onChange }} state=${state} cancel=${cancel} more=${() => look(filters, state.next)} />`}
    <${Command} words=${[kind === "topics" ? "topic" : "queue", "search", ...optionsOf(filters)]} names=${[name]} vhost=${vhost} />
  </section>`;
}

const OPTIONS = { key: "--key", header: "--header", text: "--text", regex: "--regex", json: "--where" };

const optionsOf = (filters) =>
  Object.entries(OPTIONS).flatMap(([name, option]) => (filters[name] ? [option, filters[name]] : []));

// A search, page by page: what was found so far, how far it is, and how it is ended.
function useSearch(place) {
  const [state, setState] = useState(null);
  const stopper = useRef(null);
  const cancel = () => stopper.current?.abort();
  useEffect(() => cancel, []);
  const look = async (filters, from) => {
    const mine = (stopper.current = new AbortController());
    let now = { isBusy: true, found: [], seen: 0, left: 0, cut: 0, partitions: 1, next: from };
    const say = (changes) => setState((now = { ...now, ...changes }));
    say({});
    try {
      while (now.next && now.found.length < COUNT) {
        const { partition, start } = now.next;
        const words = query({ ...filters, ...now.next, count: COUNT - now.found.length });
        const page = await get(`${place}${words}`, { signal: mine.signal });
        const rows = page.messages.map((message) => ({ ...message, partition }));
        const isLast = partition + 1 >= page.partitions;
        say({
          found: [...now.found, ...rows],
          seen: now.seen + page.looked_at,
          left: page.left,
          cut: now.cut + page.cut,
          partitions: page.partitions,
          next: page.next !== null ? { partition, start: page.next } : isLast ? null : { partition: partition + 1, start: filters.start },
        });
      }
      say({ isBusy: false });
    } catch (fault) {
      say(mine.signal.aborted ? { isBusy: false, isCancelled: true } : { isBusy: false, fault });
    }
  };
  return [state, look, cancel];
}

function Result({ of, state, cancel, more }) {
  const { found, seen, left, cut, isBusy, isCancelled, fault, next, partitions } = state;
  const share = next ? ((next.partition ?? 0) + seen / Math.max(1, seen + left)) / partitions : 1;
  const text = `${count(found.length)} shown, ${count(seen)} looked at`;
  return html`${fault && html`<${Fault} fault=${fault} />`}
    ${isBusy && html`<${Progress} label="Searched" share=${share} cancel=${cancel} />`}
    ${found.length === 0 && !isBusy && !fault && html`<p class="empty">None of the ${count(seen)} messages looked at fits.</p>`}
    ${found.map((message) => html`<${Message} key=${`${message.partition}/${message.position}`} message=${message} of=${of} isOfTopic=${partitions > 1} />`)}
    <div class="pages">
      <span role="status" aria-busy=${Boolean(isBusy)}>
        ${text}${isBusy ? `, ${count(left)} to go` : ""}${isCancelled ? "; cancelled" : ""}${cut ? `; ${count(cut)} bodies looked into in part` : ""}
      </span>
      ${!isBusy && next && html`<button onClick=${more}>Look further</button>`}
    </div>`;
}

function Message({ message, of, isOfTopic }) {
  const [isGone, setGone] = useState(false);
  const { vhost } = of;
  const [form, setForm] = useState(null);
  const isUnpacked = message.unpacked_base64 !== undefined;
  const raw = bytesOf(isUnpacked ? message.unpacked_base64 : message.payload_base64);
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
        isOfTopic && ["Partition", count(message.partition)],
        ["Position", count(message.position)],
        ["Received", moment(message.timestamp_ms)],
        ["Id", html`<code>${message.id}</code> <a href=${link(["trace", vhost, message.id])}>Where did it go?</a>`],
        ...Object.entries(message.properties ?? {})
          .filter(([key]) => key !== "headers" && key !== "message_id")
          .map(([key, value]) => [key, key === "timestamp" ? `${value} (${age(value * 1000)})` : String(value)]),
        ["headers", html`<${Arguments} values=${headers} />`],
      ]}
    />
    <p>
      Body as
      ${FORMS.map((each) => html` <button class=${each === shown.form ? "primary" : ""} aria-pressed=${each === shown.form} onClick=${() => setForm(each)}>${each}</button>`)}
      ${isUnpacked && html`<span class="dim"> decompressed</span>`}
      ${message.is_truncated && html`<span class="dim"> the beginning alone</span>`}
    </p>
    <pre>${shown.text}</pre>
    ${isGone ? html`<p class="dim">It was sent on from here.</p>` : html`<${Actions} ...${{ message, of }} onGone=${() => [setGone(true), of.onChange?.()]} />`}
  </details>`;
}

function Actions({ message, of, onGone }) {
  const { kind, vhost, name, keeps } = of;
  const queue = kind === "topics" ? `${name}-${message.partition}` : name;
  const isDead = !keeps && message.properties?.headers?.["x-death"]?.length > 0;
  return html`<div class="actions">
    ${isDead && html`<${RedriveButton} ...${{ vhost, name, message }} onDone=${onGone} />`}
    <${CopyButton} place=${`/shardmq/${kind}${path(vhost, name)}`} of=${{ vhost, name: queue }} message=${message} mayRemove=${!keeps} onDone=${(isRemoved) => isRemoved && onGone()} />
  </div>`;
}

const firstLine = ({ text }) => text.slice(0, 90).replaceAll(/\s+/g, " ");
