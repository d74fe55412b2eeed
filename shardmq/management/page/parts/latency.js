// How long something takes, from counts of how often it took how long, which grow from answer to answer.

import { useRef } from "../vendor/preact.js";

// Args: counts: by the number of bits of the time in microseconds; undefined where nobody tells.
// Returns the times within which half of them and 99 % are done, as text: of those since the last answer that had any;
// null where there were none.
export function useLatency(counts) {
  const seen = useRef({ counts: null, shown: null }).current;
  if (counts && seen.counts !== counts) {
    const before = seen.counts;
    const isAnew = !before || counts.some((value, place) => value < before[place]);
    const since = counts.map((value, place) => value - (isAnew ? 0 : before[place]));
    if (since.some((value) => value > 0)) seen.shown = { half: within(since, 0.5), most: within(since, 0.99) };
    seen.counts = counts;
  }
  return seen.shown;
}

function within(counts, share) {
  let left = share * counts.reduce((sum, value) => sum + value, 0);
  const power = counts.findIndex((value) => (left -= value) <= 0);
  const milliseconds = 2 ** power / 1000;
  return milliseconds < 1000 ? `≤ ${Number(milliseconds.toPrecision(2))} ms` : `≤ ${Number((milliseconds / 1000).toPrecision(2))} s`;
}
