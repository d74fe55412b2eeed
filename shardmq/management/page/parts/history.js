// What was seen of a row while somebody looked at it, for charts before the broker has samples of its own.

import { useRef } from "../vendor/preact.js";

const KEPT = 120;

// Args: row: the last answer; read: [name, function of the row] pairs.
// Returns a function from a name and the broker's samples to those, or to what was seen where the broker has none.
export function useHistory(row, read) {
  const seen = useRef({ row: null, series: {} });
  if (row && seen.current.row !== row) {
    seen.current.row = row;
    for (const [name, value] of read) {
      const sample = value(row);
      if (sample === undefined || sample === null) continue;
      seen.current.series[name] = [...(seen.current.series[name] ?? []), { timestamp: Date.now(), sample }].slice(-KEPT);
    }
  }
  return (name, samples = []) => {
    const own = seen.current.series[name] ?? [];
    return samples.length > 1 ? samples : own;
  };
}
