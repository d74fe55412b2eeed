// What is wrong, since when, and what to do. Brokers without findings answer 404, and nothing is shown.

import { html } from "../vendor/preact.js";
import { age } from "../format.js";
import { useAnswer } from "../live.js";
import { Command } from "./command.js";

// Args: only: which are shown; isQuiet: whether nothing is said where there are none.
export function Findings({ only = () => true, isQuiet = false }) {
  const { value } = useAnswer("/shardmq/findings");
  const found = (value?.items ?? value ?? []).filter?.(only) ?? [];
  if (!value) return null;
  if (found.length === 0 && isQuiet) return null;
  if (found.length === 0) return html`<div class="note good">Nothing is wrong that the broker can see.</div>`;
  return found.map(
    (finding) => html`<div class=${`note ${finding.severity === "error" ? "bad" : "warn"}`} role="status">
      <p><strong>${finding.title}</strong> ${finding.since && html`<span>since ${age(finding.since)}</span>`}</p>
      <p>${finding.evidence}</p>
      <p>${finding.advice}</p>
      ${finding.command && html`<${Command} text=${finding.command} />`}
    </div>`,
  );
}
