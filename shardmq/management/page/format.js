// Numbers, sizes, times and names as people read them.

const whole = new Intl.NumberFormat("en");
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

const UNKNOWN = "–";

export function count(value) {
  return value === undefined || value === null || Number.isNaN(value) ? UNKNOWN : whole.format(value);
}

export function rate(value) {
  if (value === undefined || value === null) return UNKNOWN;
  if (value >= 100) return `${whole.format(Math.round(value))}/s`;
  return `${fine.format(value)}/s`;
}

export function bytes(value) {
  if (value === undefined || value === null || value === "NaN") return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let rest = Number(value);
  let place = 0;
  while (rest >= 1024 && place < units.length - 1) {
    rest /= 1024;
    place += 1;
  }
  return `${place && rest < 100 ? fine.format(rest) : whole.format(Math.round(rest))} ${units[place]}`;
}

export function duration(milliseconds) {
  if (milliseconds === undefined || milliseconds === null) return UNKNOWN;
  if (milliseconds < 1000) return `${milliseconds < 10 ? fine.format(milliseconds) : Math.round(milliseconds)} ms`;
  const seconds = Math.floor(milliseconds / 1000);
  if (seconds < 60) return `${fine.format(milliseconds / 1000)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function moment(milliseconds) {
  if (!milliseconds) return UNKNOWN;
  return new Date(milliseconds).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

export function age(milliseconds) {
  return milliseconds ? `${duration(Math.max(0, Date.now() - milliseconds))} ago` : UNKNOWN;
}

// The rate of a counter in `message_stats`, as RabbitMQ's HTTP API has it.
export function rateOf(row, counter) {
  const details = row?.message_stats?.[`${counter}_details`];
  return details ? details.rate : undefined;
}

// A path of the API or of this page, with each part quoted.
export function path(...parts) {
  return `/${parts.map(encodeURIComponent).join("/")}`;
}

// A word for a shell.
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
