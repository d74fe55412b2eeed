// Charts over time, by uPlot, and sparklines.

import { html, useEffect, useRef } from "../vendor/preact.js";
import { count } from "../format.js";

const HEIGHT = 170;
const LETTER = 7; // its width, about
const SHORT_SECONDS = 60;
const SHOWN_SECONDS = 600; // the axis of a chart that has less than SHORT_SECONDS of samples
let library = null;

function load() {
  if (!library) {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet";
    sheet.href = "vendor/uplot.css";
    document.head.append(sheet);
    library = import("../vendor/uplot.js").then((module) => module.default);
  }
  return library;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Args: series: [{title, samples: [{timestamp, sample}], isTotal}]; a total is shown as its rate between two samples.
// format: how a value is written.
export function Chart({ title, series, format = count }) {
  const place = useRef();
  const plot = useRef(null);
  const data = table(series);
  const latest = useRef(data);
  latest.current = data;
  const names = series.map((one) => one.title).join();
  useEffect(() => {
    let isGone = false;
    load().then((Plot) => {
      if (isGone || !place.current) return;
      plot.current = new Plot(options(series, format, place.current.clientWidth), latest.current, place.current);
    });
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    resize.observe(place.current);
    return () => {
      isGone = true;
      resize.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names, document.documentElement.dataset.scheme]);
  useEffect(() => plot.current?.setData(data), [series]);
  return html`<section class="card" aria-label=${`${title}: ${spoken(series, data, format)}`}>
    <h2>${title}</h2>
    <div class="chart" ref=${place}></div>
  </section>`;
}

function spoken(series, data, format) {
  return series.map((one, place) => `${one.title} ${format(data[place + 1].findLast((value) => value !== null) ?? 0)}`).join(", ");
}

function options(series, format, width) {
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  return {
    width,
    height: HEIGHT,
    cursor: { y: false },
    axes: [axis, { ...axis, size: roomFor, values: (_plot, values) => values.map(format) }],
    scales: { x: { range: timesShown }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    series: [
      { value: shownLast((value) => new Date(value * 1000).toLocaleTimeString()) },
      ...series.map((one, place) => ({
        label: one.title,
        stroke: colour(`--series-${place + 1}`),
        width: 1.6,
        points: { show: (plot) => plot.data[0].length === 1 }, // a line needs two
        value: shownLast(format),
      })),
    ],
  };
}

// What the legend says: the value at the cursor, or the last one while the cursor is elsewhere.
const shownLast = (format) => (plot, value, column, place) => {
  const shown = place === null || place === undefined ? plot.data[column].findLast((each) => each !== null) : value;
  return shown === null || shown === undefined ? "" : format(shown);
};

const roomFor = (_plot, labels) => Math.max(44, 22 + LETTER * Math.max(0, ...(labels ?? []).map((label) => label.length)));

// uPlot makes a range of years for a single time.
function timesShown(plot, low, high) {
  const times = plot.data[0];
  const end = times.at(-1) ?? Date.now() / 1000;
  return times.length === 0 || end - times[0] < SHORT_SECONDS ? [end - SHOWN_SECONDS, end] : [low, high];
}

// Columns for uPlot: the times, and each series' value at each of them.
function table(series) {
  const columns = series.map((one) => new Map(one.isTotal ? steps(one.samples ?? []) : points(one.samples ?? [])));
  const times = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
  return [times, ...columns.map((column) => times.map((time) => column.get(time) ?? null))];
}

const points = (samples) => samples.map(({ timestamp, sample }) => [timestamp / 1000, sample]);

function steps(samples) {
  const inOrder = [...samples].sort((a, b) => a.timestamp - b.timestamp);
  return inOrder.slice(1).map(({ timestamp, sample }, place) => {
    const before = inOrder[place];
    const seconds = (timestamp - before.timestamp) / 1000;
    return [timestamp / 1000, seconds > 0 ? Math.max(0, sample - before.sample) / seconds : 0];
  });
}

// A line without axes, for rows of a table; the number stands beside it. Nothing is drawn where a value is null.
export function Sparkline({ values = [], kind = "" }) {
  const high = Math.max(1e-9, ...values);
  const step = 100 / Math.max(1, values.length - 1);
  const x = (place) => (place * step).toFixed(1);
  const runs = runsOf(values).map((places) => ({
    line: places.map((place, at) => `${at ? "L" : "M"}${x(place)} ${(22 - (20 * values[place]) / high).toFixed(1)}`).join(""),
    ends: [places.at(-1), places[0]].map((place) => `L${x(place)} 24`).join(""),
  }));
  return html`<svg class=${`spark ${kind}`} viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
    <path class="area" d=${runs.map(({ line, ends }) => `${line}${ends}Z`).join("")} />
    <path d=${runs.map(({ line }) => line).join("")} />
  </svg>`;
}

// Places of neighbouring values that are there, two or more together.
function runsOf(values) {
  const runs = [[]];
  values.forEach((value, place) => (value === null ? runs.push([]) : runs.at(-1).push(place)));
  return runs.filter((places) => places.length > 1);
}

// A bar that says how much of something is used.
export function Meter({ value, limit, isAlarm, label }) {
  const share = limit ? Math.min(1, value / limit) : 0;
  const kind = isAlarm ? "bad" : share > 0.8 ? "warn" : "";
  return html`<div class=${`meter ${kind}`} role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(share * 100)}>
    <div style=${{ width: `${(share * 100).toFixed(1)}%` }}></div>
  </div>`;
}
