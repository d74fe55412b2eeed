// What is wrong, since when, and what to do. Brokers without findings answer 404, and nothing is shown.

import { html } from "../vendor/preact.js";
import { age, count } from "../format.js";
import { useAnswer } from "../live.js";
import { Command } from "./command.js";

const SHOWN_MAX = 20;

// The titles are told to who cannot see them when they change, and not when an age does.
// Args: only: which are shown; isQuiet: whether nothing is said where there are none.
export function Findings({ only = () => true, isQuiet = false }) {
  const { value } = useAnswer("/shardmq/findings");
  const found = (value?.items ?? value ?? []).filter?.(only) ?? [];
  const isWell = value && found.length === 0 && !isQuiet;
  return html`<p class="unseen" role="status">${found.map((finding) => finding.title).join("; ")}</p>
    ${isWell && html`<div class="note good">Nothing is wrong that the broker can see.</div>`}
    ${found.slice(0, SHOWN_MAX).map((finding) => html`<${Found} key=${[finding.rule, finding.vhost, finding.name].join("\n")} finding=${finding} />`)}
    ${found.length > SHOWN_MAX && html`<div class="note warn">${count(found.length - SHOWN_MAX)} more are told by <code>shardmq check findings</code>.</div>`}`;
}

function Found({ finding: { severity, title, since, evidence, advice, command } }) {
  return html`<div class=${`note ${severity === "error" ? "bad" : "warn"}`}>
    <p><strong>${title}</strong> ${since && html`<span>since ${age(since)}</span>`}</p>
    <p>${evidence}</p>
    <p>${advice}</p>
    ${command && html`<${Command} text=${command} />`}
  </div>`;
}
