// Tables: columns with a title, what a cell shows, and the name it is sorted by.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { query as words } from "../api.js";
import { count } from "../format.js";
import { useAnswer } from "../live.js";
import { refine } from "../route.js";
import { useVisible } from "./sparks.js";
import { Fault } from "./states.js";

const PAGE_SIZE = 100;
const TYPING_MS = 250;

// A column: {title, cell(row), sort?, isNumber?, isName?}
// Args: keyOf: what makes a row the same in the next answer, with all that is open in it and where the keyboard is;
// watch: is called with the keys of the rows that can be seen.
export function Table({ columns, rows, sort, isReverse, onSort, empty = "There are none.", caption, keyOf, watch }) {
  const body = useRef();
  useVisible(body, watch && rows.map(keyOf), watch);
  if (rows.length === 0) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <thead>
        <tr>
          ${columns.map((column) => html`<${Heading} column=${column} sort=${sort} isReverse=${isReverse} onSort=${onSort} />`)}
        </tr>
      </thead>
      <tbody ref=${body}>
        ${rows.map(
          (row, place) => html`<tr key=${keyOf ? keyOf(row) : place} data-key=${watch && keyOf(row)}>
            ${columns.map((column) => html`<td class=${classOf(column)}>${column.cell(row)}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

// What can be done with a row stays in sight where the table is wider than the window.
const classOf = ({ title, isNumber, isName }) => (isNumber ? "number" : isName ? "name" : title === "" ? "act" : "");

function Heading({ column, sort, isReverse, onSort }) {
  const kind = column.isName ? "" : classOf(column);
  if (!onSort || !column.sort) return html`<th class=${kind} scope="col">${column.title || html`<span class="unseen">What can be done</span>`}</th>`;
  const isSorted = sort === column.sort;
  const direction = isSorted ? (isReverse ? "descending" : "ascending") : "none";
  const next = () => onSort(column.sort, isSorted ? !isReverse : Boolean(column.isNumber));
  return html`<th class=${kind} scope="col" aria-sort=${direction}>
    <button onClick=${next}>${column.title}${isSorted ? (isReverse ? " ↓" : " ↑") : ""}</button>
  </th>`;
}

// A list of the API that is searched, sorted and cut into pages by the broker. What is chosen is in the page's address.
// Args: notes: what is said above the table, of its rows.
export function PagedTable({ path, columns, query, defaultSort = "name", isDefaultReverse = false, caption, empty, extra = {}, tools, keyOf, watch, notes }) {
  const sort = query.sort ?? defaultSort;
  const isReverse = query.reverse === undefined ? isDefaultReverse : query.reverse === "1";
  const page = Number(query.page ?? 1);
  const isPattern = query.regex === "1";
  const asked = `${path}${words({ page, page_size: PAGE_SIZE, name: query.name, use_regex: isPattern, sort, sort_reverse: isReverse, ...extra })}`;
  const { value, fault, again } = useAnswer(asked);
  const [kept, setKept] = useState(null);
  useEffect(() => {
    if (value) setKept(value);
  }, [value]);
  const shown = value ?? kept;
  return html`<div class="tools">
      <${Search} value=${query.name ?? ""} isPattern=${isPattern} />
      ${tools?.(again)}
    </div>
    ${shown && notes?.(shown.items)}
    <section class="card">
      ${fault && html`<${Fault} fault=${fault} />`}
      ${shown &&
      html`<${Table}
          columns=${columns}
          rows=${shown.items}
          sort=${sort}
          isReverse=${isReverse}
          onSort=${(name, reverse) => refine({ sort: name, reverse: reverse ? "1" : "0", page: "" })}
          caption=${caption}
          empty=${query.name ? "Nothing has such a name." : empty}
          keyOf=${keyOf}
          watch=${watch}
        />
        ${shown.total_count > 0 && html`<${Pages} answer=${shown} />`}`}
    </section>`;
}

function Search({ value, isPattern }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => {
    if (typed === value) return undefined;
    const timer = setTimeout(() => refine({ name: typed, page: "" }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return html`<input
      type="search"
      aria-label="Search by name"
      placeholder="Search by name"
      value=${typed}
      onInput=${(event) => setTyped(event.target.value)}
    />
    <label><input type="checkbox" checked=${isPattern} onChange=${(event) => refine({ regex: event.target.checked ? "1" : "", page: "" })} />regular expression</label>`;
}

function Pages({ answer }) {
  const { page, page_count: pages, item_count: items, filtered_count: filtered, total_count: total } = answer;
  const of = filtered === total ? count(total) : `${count(filtered)} that match, of ${count(total)}`;
  return html`<div class="pages">
    <span>${count(items)} of ${of}</span>
    ${pages > 1 &&
    html`<span class="actions">
      <button aria-disabled=${page <= 1} onClick=${() => page > 1 && refine({ page: page - 1 })}>Back</button>
      <span>page ${count(page)} of ${count(pages)}</span>
      <button aria-disabled=${page >= pages} onClick=${() => page < pages && refine({ page: page + 1 })}>Next</button>
    </span>`}
  </div>`;
}
