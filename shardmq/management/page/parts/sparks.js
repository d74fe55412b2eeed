// Small charts in the rows of a list: what was counted of the rows that can be seen, and of no others.

import { useEffect, useRef, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { path, rateOf } from "../format.js";
import { useTick } from "../live.js";

const AT_ONCE = 30; // names in a request, which has to fit into an address
const SCROLLING_MS = 150;

export const placeOf = (row) => JSON.stringify([row.vhost, row.name]);

// Tells which rows of a table can be seen. Args: body: the ref of the table's body, whose rows have `data-key`;
// keys: theirs; watch: is called with the keys of those that are seen; undefined where nobody wants to know.
export function useVisible(body, keys, watch) {
  useEffect(() => {
    if (!watch || !body.current) return undefined;
    const seen = new Set();
    let timer = null;
    const observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) seen[isIntersecting ? "add" : "delete"](target.dataset.key);
      clearTimeout(timer);
      timer = setTimeout(() => watch([...seen].sort()), SCROLLING_MS);
    });
    for (const row of body.current.children) observer.observe(row);
    return () => [clearTimeout(timer), observer.disconnect()];
  }, [keys?.join("\n")]);
}

// Args: places: of queues, by `placeOf`. Returns a function from a row to its numbers for Sparklines, null where nobody
// counted: {messages, publish, deliver_get, ack}, all but the first a second.
export function useSparks(places) {
  const [found, setFound] = useState(new Map());
  const turn = useRef(0);
  const ask = async () => {
    if (places.length === 0) return;
    const mine = ++turn.current;
    const answers = await Promise.allSettled(requestsFor(places));
    if (mine === turn.current) setFound(new Map(answers.flatMap(({ value }) => value ?? []))); // what is refused has no chart
  };
  useEffect(() => {
    ask();
    return () => (turn.current += 1);
  }, [places.join("\n")]);
  useTick(ask);
  return (row) => chartsOf(found.get(placeOf(row)), row);
}

function requestsFor(places) {
  const names = new Map();
  for (const [vhost, name] of places.map((place) => JSON.parse(place))) names.set(vhost, [...(names.get(vhost) ?? []), name]);
  return [...names].flatMap(([vhost, all]) =>
    Array.from({ length: Math.ceil(all.length / AT_ONCE) }, (_, piece) => ask(vhost, all.slice(piece * AT_ONCE, (piece + 1) * AT_ONCE))),
  );
}

async function ask(vhost, names) {
  const words = new URLSearchParams(names.map((name) => ["name", name]));
  const { step, queues } = await get(`/shardmq/samples/queues${path(vhost)}?${words}`);
  return queues.map((kept) => [placeOf({ vhost, name: kept.name }), { ...kept, step }]);
}

const FLOWS = ["publish", "deliver_get", "ack"];

function chartsOf(kept, row) {
  if (!kept) return {};
  const flows = FLOWS.map((counter) => [counter, [...steps(kept[counter], kept.step), rateOf(row, counter) ?? null]]);
  return { messages: [...kept.messages, row.messages ?? null], ...Object.fromEntries(flows) };
}

const steps = (totals, seconds) =>
  totals.slice(1).map((total, place) => (total === null || totals[place] === null ? null : Math.max(0, total - totals[place]) / seconds));
