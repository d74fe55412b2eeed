// The command line that does the same.

import { html, useState } from "../vendor/preact.js";
import { quoted } from "../format.js";

export function Command({ words }) {
  const [isCopied, setCopied] = useState(false);
  const line = ["shardmq", ...words.map((word) => quoted(String(word)))].join(" ");
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
