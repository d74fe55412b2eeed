// One dead letter that was looked at: where it would go, and sending it there.

import { html } from "../vendor/preact.js";
import { post } from "../api.js";
import { count, path } from "../format.js";
import { useAsked } from "../live.js";
import { DialogButton, Form } from "./dialog.js";
import { Answered } from "./states.js";

// Args: vhost, name: of the queue; message: a row of it that died.
export function RedriveButton({ vhost, name, message, onDone }) {
  return html`<${DialogButton} label="Redrive this one">
    ${(close) => html`<${Looked} ...${{ vhost, name, message }} onDone=${() => [close(), onDone?.()]} />`}
  <//>`;
}

// A dry run first: it may be gone, or have nowhere to go.
function Looked({ vhost, name, message, onDone }) {
  const place = `/shardmq/queues${path(vhost, name)}/redrive`;
  const one = { message_id: message.id, start: message.position, limit: 1 }; // its id says which, wherever it is by then
  const answer = useAsked(() => post(place, { ...one, dry_run: true }), [place, message.id]);
  return html`<${Answered} answer=${answer}>
    ${({ ranges, targets, without_queue: homeless }) =>
      ranges.length
        ? html`<${Send} target=${Object.keys(targets)[0]} ...${{ place, one, name, vhost, message, onDone }} />`
        : html`<div class="note warn" role="alert">${homeless ? "It stays: the queue that it died in is gone." : "It is not there any more: somebody has it, or it is gone."}</div>`}
  <//>`;
}

function Send({ place, one, target, name, vhost, message, onDone }) {
  const work = () => post(place, one);
  const done = ({ redriven }) => (redriven ? `Redrove ${count(redriven)} message to ${target}.` : "It was not there any more: nothing was redriven.");
  const command = { words: ["dead-letters", "redrive", "--message-id", message.id, "--limit", "1"], names: [name], vhost };
  return html`<${Form} submit="Redrive" work=${work} done=${done} onDone=${onDone} command=${command}>
    <p>It would go back to <code>${target}</code>, where it died, and leave <code>${name}</code>. Nothing has happened yet.</p>
  <//>`;
}
