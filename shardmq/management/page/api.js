// The HTTP API, as this page asks it. The log-in is a cookie that scripts cannot read.

export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

const listeners = new Set();

// Tells when the broker stops answering, and when it answers again.
export function onReach(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function reached(is) {
  for (const listener of listeners) listener(is);
}

let onLogOut = () => {};

// Is called when the login has ended: the password was changed, or the management process started again.
export function whenLoggedOut(listener) {
  onLogOut = listener;
}

const PATIENCE_MS = 15000;
const UNAVAILABLE = 503; // what the management process says while the broker is away

export async function ask(method, path, body, { headers = {}, signal } = {}) {
  const options = { method, headers: { "X-Shardmq-Page": "1", ...headers }, credentials: "same-origin" };
  options.signal = signal ?? AbortSignal.timeout(PATIENCE_MS);
  if (body instanceof FormData || body instanceof URLSearchParams) options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(`api${path}`, options);
  } catch (fault) {
    if (signal?.aborted) throw fault;
    reached(false);
    throw new Refused(0, "The management process does not answer. Is the broker running?");
  }
  const text = await answer.text();
  let value;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = { reason: text.slice(0, 300) };
  }
  reached(answer.status !== UNAVAILABLE);
  if (answer.status === 401 && value?.error === "not_authorized") onLogOut();
  if (!answer.ok) throw new Refused(answer.status, reasonOf(value) ?? `The answer was ${answer.status}.`);
  return value;
}

function reasonOf(value) {
  const reason = value?.reason ?? value?.error;
  return typeof reason === "object" && reason !== null ? JSON.stringify(reason) : reason;
}

export const get = (path, options) => ask("GET", path, undefined, options);
export const put = (path, body) => ask("PUT", path, body ?? {});
export const post = (path, body) => ask("POST", path, body ?? {});
export const remove = (path, options) => ask("DELETE", path, undefined, options);

export function query(values) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) words.set(name, value);
  }
  const text = words.toString();
  return text ? `?${text}` : "";
}

export async function login(user, password) {
  await ask("POST", "/login", new URLSearchParams({ username: user, password }));
}

export const logout = () => remove("/login");
