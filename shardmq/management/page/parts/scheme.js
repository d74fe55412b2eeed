// Light or dark: as the system has it, or as was chosen here.

import { html, useState } from "../vendor/preact.js";

const KEY = "shardmq.scheme";
const system = matchMedia("(prefers-color-scheme: dark)");

const chosen = () => localStorage.getItem(KEY) ?? "system";

export function applyScheme() {
  const scheme = chosen() === "system" ? (system.matches ? "dark" : "light") : chosen();
  document.documentElement.dataset.scheme = scheme;
}

system.addEventListener("change", applyScheme);

export function SchemeChoice() {
  const [value, setValue] = useState(chosen());
  const choose = (event) => {
    localStorage.setItem(KEY, event.target.value);
    setValue(event.target.value);
    applyScheme();
  };
  return html`<label
    >Colours
    <select value=${value} onChange=${choose}>
      <option value="system">as the system</option>
      <option value="light">light</option>
      <option value="dark">dark</option>
    </select>
  </label>`;
}
