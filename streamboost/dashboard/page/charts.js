// A chart over rows: uPlot with the axis, the cursor and the markers that all charts of the page share.

import { count, number, short } from "./format.js";
import { colour, onTheme } from "./theme.js";

const AXIS = 64; // pixels left of every plot, so that rows stand below one another
const GLYPHS = { "memory dropped": "▼", "new column": "◆", "new class": "●", "memory limited": "■" };
const OTHER_GLYPHS = ["★", "✚", "▲", "◼", "✖"];
const WHOLE = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const others = new Map();
const all = []; // the charts of the page

export function glyph(kind) {
  if (Object.hasOwn(GLYPHS, kind)) return GLYPHS[kind];
  if (!others.has(kind)) others.set(kind, OTHER_GLYPHS[others.size % OTHER_GLYPHS.length]);
  return others.get(kind);
}

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const font = (size = 12) => `${size}px system-ui, sans-serif`;

// From the row before the first observation to the last.
function rowRange(rows) {
  if (rows.length === 0) return [0, 1];
  const last = rows.at(-1);
  const first = rows.length > 1 ? Math.max(0, 2 * rows[0] - rows[1]) : 0;
  return [Math.min(first, last - 1), last];
}

// A range that a few wild values, such as those of the first rows, do not blow up.
export function calmRange(columns, { floor = null, reach = 1.5 } = {}) {
  const values = columns.flat().filter((value) => value !== null && value !== undefined).sort((a, b) => a - b);
  if (values.length === 0) return { range: [0, 1], cut: false };
  const at = (share) => values[Math.round(share * (values.length - 1))];
  const spread = at(0.95) - at(0.05);
  const low = Math.max(values[0], at(0.05) - reach * spread);
  const high = Math.min(values.at(-1), at(0.95) + reach * spread);
  const pad = 0.08 * (high - low) || 0.05 * Math.abs(high) || 1;
  const range = [floor === null ? low - pad : floor, high + pad];
  return { range, cut: values[0] < low || values.at(-1) > high };
}

export class RowChart {
  // id: of the chart's element; series: [{label, colour, dash, width}]; range: columns to {range: [low, high], cut};
  // format, tick: a value to text, in words and on the axis; whole: only whole numbers on the axis; step: draw values as steps; paint(chart, u, context): under the series
  constructor(id, { series = [], range, format = number, tick = short, whole = false, step = false, paint = null }) {
    this.id = id;
    this.box = document.getElementById(id);
    this.legend = document.getElementById(`${id}-legend`);
    this.summary = document.getElementById(`${id}-summary`);
    this.series = series;
    this.rangeOf = range;
    this.format = format;
    this.whole = whole;
    this.step = step;
    this.paint = paint;
    this.tick = tick;
    this.rows = [];
    this.columns = series.map(() => []);
    this.events = [];
    this.range = [0, 1];
    this.held = null; // the row at which the keyboard holds the cursor
    this.plot = null;
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    this.box.addEventListener("blur", () => this.release());
    this.box.addEventListener("pointermove", () => all.forEach((chart) => (chart.held = null))); // the hand takes over
    all.push(this);
    onTheme(() => this.plot?.redraw());
    new ResizeObserver(() => this.fit()).observe(this.box);
    this.makeLegend();
  }

  // Draw these columns, one a series, over rows; or say in words why there is nothing.
  update(rows, columns, events, words) {
    this.rows = rows;
    this.columns = columns;
    this.events = events;
    const { range, cut } = this.rangeOf(columns);
    this.range = range;
    this.summary.textContent = cut ? `${words} A few values lie beyond the axis.` : words;
    const any = this.paint !== null ? rows.length > 0 : columns.some((column) => column.some((one) => one !== null));
    this.box.hidden = !any;
    if (this.legend !== null) this.legend.hidden = !any;
    if (!any) return;
    if (this.plot === null) this.make();
    this.plot.setData(this.data());
    if (this.held !== null) this.moveTo(this.nearest(this.held));
    this.tell();
  }

  data() {
    return [this.rows, ...(this.series.length ? this.columns : [this.rows.map(() => null)])];
  }

  make() {
    const axis = (more) => ({
      stroke: () => colour("muted"), font: font(12), ticks: { show: false }, gap: 6, ...more,
    });
    const grid = { stroke: () => colour("grid"), width: 1 };
    const lines = this.series.length ? this.series : [{}];
    const options = {
      ...this.size(), padding: [16, 22, 0, 0], legend: { show: false },
      cursor: {
        sync: { key: "rows", scales: ["x", null] }, drag: { x: false, y: false }, y: this.paint?.picks ?? false,
        points: { show: this.series.length > 0, size: 7 },
      },
      scales: { x: { time: false, range: () => rowRange(this.rows) }, y: { range: () => this.range } },
      axes: [
        axis({ grid: { show: false }, values: (_, splits) => splits.map((row) => short(row)), size: 30, space: 70 }),
        axis({
          size: AXIS, space: 32, grid: this.tick === null ? { show: false } : grid,
          incrs: this.whole ? WHOLE : undefined,
          values: (_, splits, axisIndex, space, step) => splits.map((value) => this.onAxis(value, step)),
        }),
      ],
      series: [{}, ...lines.map((line) => this.line(line))],
      hooks: {
        drawAxes: [(u) => this.paint?.(this, u, u.ctx)],
        draw: [(u) => this.mark(u)],
        setCursor: [() => this.tell()],
      },
    };
    this.plot = new uPlot(options, this.data(), this.box);
  }

  // As many decimals for each value of the axis as the step between them has.
  onAxis(value, step) {
    if (this.tick === null || value === null) return "";
    const decimals = String(Number(step.toPrecision(6))).split(".")[1]?.length ?? 0;
    return this.tick(value, decimals);
  }

  line({ colour: name, dash, width = 2 }) {
    return {
      stroke: () => colour(name ?? "muted"), width, dash, points: { show: (u) => u.data[0].length === 1, size: 6 },
      paths: this.step ? uPlot.paths.stepped({ align: 1 }) : undefined, spanGaps: false,
    };
  }

  size() {
    return { width: Math.max(120, this.box.clientWidth), height: Math.max(100, this.box.clientHeight) };
  }

  fit() {
    if (this.plot !== null && !this.box.hidden && (this.plot.width !== this.size().width || this.plot.height !== this.size().height))
      this.plot.setSize(this.size());
  }

  // Events: a line down to the rows at which they happened, with the sign of their kind on top.
  mark(u) {
    const { ctx, bbox } = u;
    const ratio = window.devicePixelRatio;
    const [first, last] = rowRange(this.rows);
    ctx.save();
    ctx.textAlign = "center";
    ctx.textBaseline = "bottom";
    ctx.font = font(9 * ratio);
    ctx.lineWidth = ratio;
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    for (const event of this.events) {
      if (event.row < first || event.row > last) continue;
      const x = Math.round(u.valToPos(event.row, "x", true));
      ctx.strokeStyle = colour("marker");
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillStyle = colour(event.kind === "memory dropped" ? "accent" : "text");
      ctx.fillText(glyph(event.kind), x, bbox.top - ratio);
    }
    ctx.restore();
  }

  // The keyboard's way to move the cursor.
  onKey(event) {
    if (this.plot === null || this.rows.length === 0) return;
    const at = this.plot.cursor.idx ?? this.rows.length - 1;
    const stride = event.shiftKey ? 10 : 1;
    const moves = { ArrowLeft: at - stride, ArrowRight: at + stride, Home: 0, End: this.rows.length - 1 };
    if (event.key in moves) this.hold(moves[event.key]);
    else if (event.key === "Escape") this.release();
    else if (!this.onOtherKey?.(event.key)) return;
    event.preventDefault();
  }

  hold(index) {
    const there = Math.min(Math.max(index, 0), this.rows.length - 1);
    this.held = this.rows[there];
    this.moveTo(there);
  }

  release() {
    this.held = null;
    this.plot?.setCursor({ left: -10, top: -10 }, true, true);
  }

  moveTo(index, top = this.plot.over.clientHeight / 2) {
    this.plot.setCursor({ left: this.plot.valToPos(this.rows[index], "x"), top }, true, true);
  }

  nearest(row) {
    const found = this.rows.findIndex((one) => one >= row);
    return found < 0 ? this.rows.length - 1 : found;
  }

  // The legend, and what a screen reader says: values at the cursor, or the newest.

  makeLegend() {
    if (this.legend === null) return;
    this.place = element("li", { className: "place" });
    this.values = this.series.map(() => element("span", { className: "value" }));
    const items = this.series.map((line, i) => {
      const sample = element("span", { className: line.dash ? "sample dashed" : "sample" });
      sample.style.setProperty("--colour", `var(--${line.colour})`);
      return element("li", {}, sample, `${line.label} `, this.values[i]);
    });
    this.happened = element("li", { className: "happened" });
    this.legend.append(...items, this.happened, this.place);
  }

  index() {
    return this.plot?.cursor.idx ?? null;
  }

  happenedAt(index) {
    const before = index > 0 ? this.rows[index - 1] : -1;
    return this.events.filter((event) => event.row > before && event.row <= this.rows[index]);
  }

  tell() {
    const chosen = this.index();
    const index = Math.min(chosen ?? this.rows.length - 1, this.rows.length - 1);
    if (index < 0) return;
    const place = chosen === null ? "now" : `row ${count(this.rows[index])}`;
    const said = this.say(index);
    const happened = chosen === null ? [] : this.happenedAt(index);
    this.box.setAttribute("aria-valuemin", String(this.rows[0]));
    this.box.setAttribute("aria-valuemax", String(this.rows.at(-1)));
    this.box.setAttribute("aria-valuenow", String(this.rows[index]));
    this.box.setAttribute("aria-valuetext", [place, ...said, ...happened.map((event) => event.kind)].join(", "));
    if (this.legend === null) return;
    this.place.textContent = place;
    this.happened.textContent = happened.map((event) => `${glyph(event.kind)} ${event.kind}`).join("  ");
  }

  say(index) {
    return this.series.map((line, i) => {
      const value = this.format(this.columns[i]?.[index] ?? null);
      this.values[i].textContent = value;
      return `${line.label} ${value}`;
    });
  }
}
