// The command line that does the same.

import { html, useState } from "../vendor/preact.js";
import { quoted } from "../format.js";

function lineOf(words, names, vhost) {
  const place = vhost === undefined ? [] : ["--vhost", vhost];
  const ends = names.some((name) => String(name).startsWith("-")) ? ["--"] : []; // what follows is no option
  return ["shardmq", ...words, ...place, ...ends, ...names].map((word) => quoted(String(word))).join(" ");
}

// The request that does the same, where no command does. Args: path: below /api; user: who asks.
export function Request({ path, user }) {
  const url = new URL(`api${path}`, location.href);
  return html`<${Command} text=${`curl -u ${quoted(user)} ${quoted(url.href)}`} />`;
}

// Args: words: of the command, with its options; names: of what it is for; vhost: where those are, if anywhere;
// text: the whole line, instead of these.
export function Command({ words, names = [], vhost, text }) {
  const [isCopied, setCopied] = useState(false);
  const line = text ?? lineOf(words, names, vhost);
  const copy = async () => {
    await navigator.clipboard?.writeText(line);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<div class="command">
    <code>${line}</code>
    <button onClick=${copy} aria-label=${`Copy: ${line}`}>${isCopied ? "Copied" : "Copy"}</button>
  </div>`;
}
