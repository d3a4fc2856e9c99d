// The page: listens to the feed, and shows what it says.

import { capital, clock, count, day, isKnown, many, memoryName, metricName, milliseconds, number, share } from "./format.js";
import { History } from "./history.js";
import { startTheme } from "./theme.js";
import { RowChart, calmRange, element, glyph } from "./charts.js";
import { StackedChart } from "./stacked.js";
import { EdgeStrip } from "./strip.js";

const RETRY = 2000; // milliseconds until a line that was closed is tried again
const CALM = 200; // milliseconds between two drawings, at least
const COLUMNS = 8;
const EXPERTS = 7;

const history = new History();
const find = (id) => document.getElementById(id);
const pick = (get) => history.observations.map((one) => get(one) ?? null);

// What is shown.

let charts = null;

function makeCharts() {
  const upwards = (columns) => calmRange(columns, { floor: 0, reach: 6 }); // peaks tell something
  const whole = (columns) => ({ range: [0, Math.max(1, ...columns.flat()) * 1.08] });
  const counts = { range: whole, format: count, whole: true, step: true };
  charts = {
    error: new RowChart("error", {
      series: [
        { label: "all rows", colour: "calm", dash: [6, 4], width: 1.5 },
        { label: "lately", colour: "accent" },
      ],
      range: (columns) => calmRange(columns),
    }),
    weights: new StackedChart("weights"),
    edges: new EdgeStrip("edges"),
    importances: new StackedChart("importances"),
    speed: new RowChart("speed", { series: [{ label: "rows/s", colour: "accent" }], format: count, range: upwards }),
    latency: new RowChart("latency", {
      series: [{ label: "p50", colour: "accent" }, { label: "p99", colour: "calm", dash: [6, 4], width: 1.5 }],
      format: milliseconds,
      range: upwards,
    }),
    pending: new RowChart("pending", { series: [{ label: "waiting", colour: "accent" }], ...counts }),
    quarantine: new RowChart("quarantine", { series: [{ label: "refused", colour: "accent" }], ...counts }),
  };
}

function showError(rows) {
  const names = [...new Set(history.observations.flatMap((one) => Object.keys(one.metrics ?? {})))];
  const select = find("metric");
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
    const chosen = names.includes(select.value) ? select.value : names[0];
    select.replaceChildren(...names.map((name) => element("option", { value: name }, metricName(name))));
    if (names.length) select.value = chosen;
  }
  find("metric-label").hidden = names.length < 2;
  const name = select.value;
  const columns = ["running", "windowed"].map((kind) => pick((one) => one.metrics?.[name]?.[kind]));
  const now = history.last.metrics?.[name];
  charts.error.update(rows, columns, history.events, now === undefined
    ? "No metric yet: the labels of the first rows have to come."
    : `${capital(metricName(name))} ${number(now.windowed)} lately, ${number(now.running)} over all rows.`);
}

function showWeights(rows) {
  const key = (expert) => `${expert.memory ?? "all"}/${expert.learners}`;
  const observed = history.observations.map((one) => new Map((one.weights ?? []).map((w) => [key(w), w.weight ?? 0])));
  const parts = (name) => name.split("/").map((part) => (part === "all" ? null : Number(part)));
  const memories = [...new Set(observed.flatMap((one) => [...one.keys()].map((name) => parts(name)[0])))]
    .sort((a, b) => (b ?? Infinity) - (a ?? Infinity));
  const long = (name) => parts(name)[0] ?? Infinity;
  const top = history.last.weights?.[0];
  const words = top === undefined
    ? "No hedge votes in this model: it answers with one sum."
    : `Most trusted: ${expertName(top.memory, top.learners)}, ${share(top.weight)} of the vote. Longest memories lie at the bottom.`;
  charts.weights.show(rows, observed, history.events, words, {
    most: EXPERTS,
    order: (a, b) => long(b) - long(a) || parts(b)[1] - parts(a)[1],
    look: (name, keys) => {
      const [memory, learners] = parts(name);
      const rung = Math.min(4, Math.round((4 * memories.indexOf(memory)) / Math.max(1, memories.length - 1)));
      const tone = Math.min(3, keys.filter((one) => long(one) === long(name)).indexOf(name) + 1);
      return { label: expertName(memory, learners), short: `${memory === null ? "all" : count(memory)} · ${learners}`, colour: `memory-${rung}-${tone}` };
    },
  });
}

const expertName = (memory, learners) =>
  `${memoryName(memory)} · ${learners === 0 ? "base alone" : many(learners, "learner")}`;

const columnName = (name) => (/^\d+$/.test(name) ? `column ${name}` : name);

function showImportances(rows) {
  const observed = history.observations.map((one) => new Map(Object.entries(one.importances ?? {})));
  const [first, second] = [...(observed.at(-1) ?? [])].sort((a, b) => b[1] - a[1]);
  const words = first === undefined
    ? "No importances: these learners are no trees, or nothing has been learned yet."
    : `${columnName(first[0])} accounts for ${share(first[1])} of how far predictions move`
      + `${second === undefined ? "" : `, ${columnName(second[0])} ${share(second[1])}`}.`;
  charts.importances.show(rows, observed, history.events, words, {
    most: COLUMNS,
    look: (name, keys) => ({ label: columnName(name), colour: `column-${keys.indexOf(name) + 1}` }),
  });
}

function showRest(rows) {
  const { last, events } = history;
  charts.speed.update(rows, [pick((one) => one.rows_per_second)], events,
    isKnown(last.rows_per_second) ? `${count(last.rows_per_second)} rows learned a second.` : "Not measured.");
  const latency = ["p50", "p99"].map((kind) => pick((one) => one.latency_ms?.[kind]));
  charts.latency.update(rows, latency, events, last.latency_ms
    ? `Half within ${milliseconds(last.latency_ms.p50)}, 99 % within ${milliseconds(last.latency_ms.p99)}.`
    : "Not measured: nobody asks for predictions.");
  charts.pending.update(rows, [pick((one) => one.pending)], events,
    isKnown(last.pending) ? `${many(last.pending, "row waits", "rows wait")} for a label.` : "Labels come with their rows.");
  charts.quarantine.update(rows, [pick((one) => one.quarantined)], events,
    `${many(last.quarantined ?? 0, "row")} refused so far.`);
}

function showNumbers() {
  const { last } = history;
  const metrics = Object.entries(last.metrics ?? {}).slice(0, 4).map(([name, { running, windowed }]) =>
    [`metric-${name}`, `${capital(metricName(name))} lately`, number(windowed), `${number(running)} over all rows`]);
  const latency = last.latency_ms;
  const numbers = [
    ["rows", "Rows learned", count(last.rows), ""],
    ["speed", "Rows per second", count(last.rows_per_second), ""],
    ...metrics,
    ["latency", "Latency p50", latency ? milliseconds(latency.p50) : "–", latency ? `p99 ${milliseconds(latency.p99)}` : "not measured"],
    ["pending", "Pending labels", isKnown(last.pending) ? count(last.pending) : "–", isKnown(last.pending) ? "rows wait" : "none wait here"],
    ["quarantine", "Quarantine", count(last.quarantined ?? 0), "rows refused"],
  ];
  find("numbers").replaceChildren(...numbers.map(([id, label, value, note]) => {
    const shown = element("div", { id: `number-${id}` }, element("dt", {}, label), element("dd", { className: "number" }, value));
    if (note) shown.append(element("dd", { className: "note" }, note));
    return shown;
  }));
  find("updated").textContent = isKnown(last.time) ? `Newest observation at ${clock(last.time)}.` : "";
}

let shownEvents = "";

function showEvents() {
  const { events } = history;
  const signature = JSON.stringify([events.length, events.at(0), events.at(-1)]);
  if (signature === shownEvents) return;
  shownEvents = signature;
  const kinds = new Map();
  for (const { kind } of events) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  find("events-summary").textContent = events.length
    ? `${[...kinds].map(([kind, n]) => `${glyph(kind)} ${kind}: ${count(n)}`).join(" · ")}. The newest first; a row’s button shows it in the charts.`
    : "Nothing so far: no drift, no new column, no new class.";
  find("events-scroll").hidden = events.length === 0;
  find("events").tBodies[0].replaceChildren(...events.toReversed().map((event) => {
    const button = element("button", { type: "button", title: "Show in the charts" }, count(event.row));
    button.addEventListener("click", () => {
      charts.error.box.focus();
      charts.error.hold(charts.error.nearest(event.row));
    });
    return element("tr", {},
      element("td", {}, button),
      element("td", {}, element("span", { className: "day" }, `${day(event.time)} `), clock(event.time)),
      element("td", {}, element("span", { className: "glyph", ariaHidden: "true" }, glyph(event.kind)), ` ${event.kind}`),
      element("td", {}, event.detail ?? ""));
  }));
}

function showPartitions() {
  const partitions = history.last.partitions ?? [];
  find("partitions-panel").hidden = partitions.length === 0;
  if (partitions.length === 0) return;
  const names = [...new Set(partitions.flatMap(Object.keys))];
  find("partitions-summary").textContent = `${count(partitions.length)} partitions, as they were at the newest observation.`;
  find("partitions").tHead.replaceChildren(element("tr", {}, ...names.map((name) =>
    element("th", { scope: "col" }, name.replaceAll("_", " ")))));
  find("partitions").tBodies[0].replaceChildren(...partitions.map((partition) => element("tr", {}, ...names.map((name) =>
    element("td", {}, typeof partition[name] === "number" ? number(partition[name]) : partition[name] ?? "–")))));
}

function showTitle() {
  const title = history.title || "streamboost";
  document.title = title;
  find("title").textContent = title;
  find("about").replaceChildren(...Object.entries(history.about).map(([key, value]) =>
    element("div", {}, element("dt", {}, key), element("dd", {}, String(value)))));
}

function show() {
  showTitle();
  const isEmpty = history.observations.length === 0;
  find("empty").hidden = !isEmpty;
  find("filled").hidden = isEmpty;
  find("foot").hidden = isEmpty;
  document.body.dataset.observations = String(history.observations.length);
  document.body.dataset.events = String(history.events.length);
  if (isEmpty) return;
  charts ?? makeCharts();
  const { rows } = history;
  showNumbers();
  showError(rows);
  showWeights(rows);
  charts.edges.show(history.observations, rows, history.events);
  showImportances(rows);
  showRest(rows);
  showPartitions();
  showEvents();
}

let waiting = false;

function showSoon() {
  if (waiting) return;
  waiting = true;
  window.setTimeout(() => window.requestAnimationFrame(() => {
    waiting = false;
    show();
  }), CALM);
}

// The line to the server.

function setState(state) {
  if (document.body.dataset.state === state) return;
  document.body.dataset.state = state;
  find("state-text").textContent = state;
}

function take(event, message) {
  if (event === "history") history.replace(message);
  else if (event === "observation") history.add(message);
  else history.ended = true;
  setState(history.ended ? "ended" : "live");
  showSoon();
}

function listen() {
  const source = new EventSource("events");
  for (const event of ["history", "observation", "ended"])
    source.addEventListener(event, ({ data }) => take(event, JSON.parse(data)));
  source.addEventListener("error", () => {
    if (!history.ended) setState("reconnecting"); // what has ended stays so, until there is news
    if (source.readyState === EventSource.CLOSED) window.setTimeout(listen, RETRY); // else it tries by itself
  });
}

startTheme();
find("metric").addEventListener("change", show);
const inside = find("history"); // a page that was written to a file brings what it shows
if (inside === null) listen();
else {
  take("history", JSON.parse(inside.textContent));
  show();
}
