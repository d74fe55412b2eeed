// Places for a graph of exchanges and queues: exchanges in columns by how far they are from publishers, queues last.

const ROW = 44;
const GAP = 190;
const LETTER = 7.2;
const TEXT_MAX = 28;
const MARGIN = 12;

const shortened = (text) => (text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX - 1)}…` : text);

// Args: rows: bindings as the API has them.
// Returns {nodes, edges, width, height}; an edge's `line` is a path of SVG.
export function layout(rows) {
  const nodes = new Map();
  const node = (kind, name) => {
    const id = `${kind === "exchange" ? "e" : "q"}:${name}`;
    if (!nodes.has(id)) {
      const text = shortened(name);
      nodes.set(id, { id, kind, name, text, level: 0, width: Math.max(60, text.length * LETTER + 24) });
    }
    return nodes.get(id);
  };
  const pairs = rows.map((row) => ({ from: node("exchange", row.source), to: node(row.destination_type, row.destination), label: shortened(row.routing_key) }));
  level(pairs, nodes.size);
  const last = 1 + Math.max(0, ...[...nodes.values()].filter((one) => one.kind === "exchange").map((one) => one.level));
  for (const one of nodes.values()) if (one.kind === "queue") one.level = last;
  const { width, height } = place([...nodes.values()], pairs);
  return { nodes: [...nodes.values()], edges: pairs.map(drawn), width, height };
}

// An exchange is a column behind the exchanges that lead to it; rounds are bounded, as bindings may form circles.
function level(pairs, most) {
  for (let round = 0; round < Math.min(most, 12); round += 1) {
    let isChanged = false;
    for (const { from, to } of pairs) {
      if (to.kind === "exchange" && to !== from && to.level <= from.level && from.level < 12) {
        to.level = from.level + 1;
        isChanged = true;
      }
    }
    if (!isChanged) return;
  }
}

function place(nodes, pairs) {
  const columns = Map.groupBy ? Map.groupBy(nodes, (one) => one.level) : grouped(nodes);
  let x = MARGIN;
  let tallest = 0;
  for (const number of [...columns.keys()].sort((a, b) => a - b)) {
    const column = columns.get(number);
    for (const one of column) one.wish = mean(pairs.filter(({ to }) => to === one).map(({ from }) => from.y ?? 0));
    column.sort((a, b) => a.wish - b.wish || a.name.localeCompare(b.name));
    column.forEach((one, at) => Object.assign(one, { x, y: MARGIN + at * ROW }));
    tallest = Math.max(tallest, column.length);
    x += Math.max(...column.map((one) => one.width)) + GAP;
  }
  return { width: x - GAP + MARGIN, height: tallest * ROW + MARGIN };
}

function grouped(nodes) {
  const columns = new Map();
  for (const one of nodes) columns.set(one.level, [...(columns.get(one.level) ?? []), one]);
  return columns;
}

const mean = (values) => (values.length ? values.reduce((all, one) => all + one, 0) / values.length : 0);

function drawn({ from, to, label }) {
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + 14, to.x, to.y + 14];
  const bend = Math.max(40, (x2 - x1) / 2);
  return { from: from.id, to: to.id, label, line: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 4 };
}
