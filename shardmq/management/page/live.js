// What is shown stays current: it is asked for again every five seconds while somebody looks.

import { useEffect, useRef, useState } from "./vendor/preact.js";
import { get, onReach } from "./api.js";

// Ticks come at the same time in all browsers, so that who looks at the same gets the same answer, made once.
const TICK_MS = 5000;
const listeners = new Set();
let timer = null;

function tick() {
  if (document.hidden) return;
  for (const listener of listeners) listener();
}

export function start() {
  stop();
  plan();
  document.addEventListener("visibilitychange", tick);
}

export function stop() {
  clearTimeout(timer);
  document.removeEventListener("visibilitychange", tick);
  timer = null;
}

function plan() {
  timer = setTimeout(() => {
    plan();
    tick();
  }, TICK_MS - (Date.now() % TICK_MS));
}

// Calls `listener` with each tick.
export function useTick(listener) {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const call = () => latest.current();
    listeners.add(call);
    return () => listeners.delete(call);
  }, []);
}

// What the API answers to GET `path`, asked again with each tick.
// Returns {value, fault, at, again}: the last answer stays while a later one is refused, with the reason beside it.
export function useAnswer(path, { isLive = true } = {}) {
  const [state, setState] = useState({ path: null, value: null, fault: null, at: null });
  const turn = useRef(0);
  const busy = useRef(null);
  const ask = async (isTick) => {
    if (path === null || (isTick && busy.current === path)) return;
    const mine = ++turn.current;
    busy.current = path;
    try {
      const value = await get(path);
      if (mine === turn.current) setState({ path, value, fault: null, at: Date.now() });
    } catch (fault) {
      if (mine === turn.current) setState((old) => ({ ...(old.path === path ? old : { value: null, at: null }), path, fault }));
    } finally {
      if (mine === turn.current) busy.current = null;
    }
  };
  useEffect(() => {
    ask(false);
    return () => {
      turn.current += 1;
      busy.current = null;
    };
  }, [path]);
  useTick(() => isLive && ask(true));
  const current = state.path === path ? state : { value: null, fault: null, at: null };
  return { ...current, again: () => ask(false) };
}

// What `work` answers, asked once for the same keys. Returns {value, fault}.
export function useAsked(work, keys) {
  const [state, setState] = useState({ value: null, fault: null });
  useEffect(() => {
    let isOld = false;
    work().then(
      (value) => isOld || setState({ value, fault: null }),
      (fault) => isOld || setState({ value: null, fault }),
    );
    return () => (isOld = true);
  }, keys);
  return state;
}

// Whether the management process answers.
export function useReach() {
  const [is, setIs] = useState(true);
  useEffect(() => onReach(setIs), []);
  return is;
}
