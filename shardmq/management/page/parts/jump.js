// Ctrl-K: to a view, a queue, an exchange or a topic by a part of its name.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, query } from "../api.js";
import { link } from "../route.js";
import { NAVIGATION } from "../views/index.js";
import { Dialog } from "./dialog.js";

const FOUND_MAX = 12;
const TYPING_MS = 150;

export function Jump() {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const listen = (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setOpen(true);
      }
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
  return isOpen && html`<${Dialog} title="Jump to" onClose=${() => setOpen(false)}><${Choice} close=${() => setOpen(false)} /><//>`;
}

async function search(text) {
  const views = NAVIGATION.filter((entry) => entry.title.toLowerCase().includes(text.toLowerCase())).map((entry) => ({
    text: entry.title,
    kind: "view",
    href: `#/${entry.view}`,
  }));
  if (!text) return views;
  const words = query({ name: text, page: 1, page_size: FOUND_MAX, columns: "name,vhost", disable_stats: "true" });
  const lists = await Promise.allSettled([get(`/queues${words}`), get(`/exchanges${words}`)]);
  const [queues, exchanges] = lists.map((list) => (list.status === "fulfilled" ? list.value.items : []));
  const entry = (kind, view) => (row) => ({ text: row.name || "(default)", more: row.vhost, kind, href: link([view, row.vhost, row.name]) });
  return [...views, ...queues.map(entry("queue", "queues")), ...exchanges.map(entry("exchange", "exchanges"))].slice(0, FOUND_MAX);
}

function Choice({ close }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState([]);
  const [place, setPlace] = useState(0);
  useEffect(() => {
    let isOld = false;
    const timer = setTimeout(async () => {
      const rows = await search(text);
      if (!isOld) {
        setFound(rows);
        setPlace(0);
      }
    }, TYPING_MS);
    return () => {
      isOld = true;
      clearTimeout(timer);
    };
  }, [text]);
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setPlace((old) => Math.min(found.length - 1, Math.max(0, old + step)));
    } else if (event.key === "Enter" && found[place]) {
      location.hash = found[place].href;
      close();
    }
  };
  return html`<div class="jump">
    <input
      type="search"
      role="combobox"
      aria-label="Name of a view, queue or exchange"
      aria-autocomplete="list"
      aria-expanded=${found.length > 0}
      aria-controls="jump-found"
      aria-activedescendant=${found[place] && `jump-${place}`}
      value=${text}
      onInput=${(event) => setText(event.target.value)}
      onKeyDown=${onKey}
      autofocus
    />
    <ul id="jump-found" role="listbox" aria-label="What is found">
      ${found.map(
        (entry, at) =>
          html`<li role="none">
            <a id=${`jump-${at}`} role="option" aria-selected=${at === place} tabindex="-1" class=${at === place ? "chosen" : ""} href=${entry.href} onClick=${close}>
              <span>${entry.text} <span class="dim">${entry.more}</span></span> <span class="dim">${entry.kind}</span>
            </a>
          </li>`,
      )}
    </ul>
  </div>`;
}
