// What stands in for a view that has nothing to show, and how far what is shown can be trusted.

import { html, useEffect, useState } from "../vendor/preact.js";
import { age } from "../format.js";

export function Fault({ fault, at }) {
  const text =
    fault.status === 401 || fault.status === 403
      ? `You may not see this: ${fault.message}`
      : fault.status === 404
        ? "It is not there, or not any more."
        : fault.message;
  return html`<div class="note bad">
    <p role="alert">${text}</p>
    ${at && html`<p>What is shown is of ${age(at)}.</p>`}
  </div>`;
}

const LONG_MS = 2500;

// Who waits is told of it when it takes long: a process that hangs is waited for before the others are told of.
function Loading() {
  const [isLong, setLong] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLong(true), LONG_MS);
    return () => clearTimeout(timer);
  }, []);
  return html`<p class="dim" role="status">Loading…${isLong && " It takes long: a process of the broker is busy, or does not answer."}</p>`;
}

// The answer of a view: `children` is called with it as soon as it is there.
export function Answered({ answer, children }) {
  if (answer.value === null) return answer.fault ? html`<${Fault} fault=${answer.fault} />` : html`<${Loading} />`;
  return html`${answer.fault && html`<${Fault} fault=${answer.fault} at=${answer.at} />`}${children(answer.value)}`;
}

export function Head({ title, children }) {
  useEffect(() => {
    document.title = `${title} · shardmq`;
  }, [title]);
  return html`<div class="head"><h1>${title}</h1>${children}</div>`;
}

export function Figures({ rows }) {
  return html`<dl class="figures">
    ${rows.filter(Boolean).map(([name, value, more]) => html`<div><dt>${name}</dt><dd>${value} ${more && html`<small>${more}</small>`}</dd></div>`)}
  </dl>`;
}

export function Facts({ rows }) {
  return html`<dl class="facts">${rows.filter(Boolean).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

export function Arguments({ values }) {
  const rows = Object.entries(values ?? {});
  if (rows.length === 0) return html`<span class="dim">none</span>`;
  return rows.map(([name, value]) => html`<div><code>${name}: ${JSON.stringify(value)}</code></div>`);
}
