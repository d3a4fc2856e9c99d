// The edges of all learners over rows, a line of pixels each: how much of its targets a learner explains.

import { capital, count, isKnown, many, memoryName, number } from "./format.js";
import { colour } from "./theme.js";
import { RowChart, element } from "./charts.js";

const STEPS = 100; // shades on either side of 0
const GAP = 5; // pixels between memories
const LIMITS = [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1]; // edges with the fullest colours
const TINY = 0.01; // an edge that is next to none

// Boosters by memory, the longest first, a challenger last; sizes as large as they ever were.
function groupsOf(observations) {
  const groups = new Map();
  for (const one of observations) {
    for (const stack of one.edges ?? []) {
      const key = `${stack.memory}${stack.challenger ? " challenger" : ""}`;
      const group = groups.get(key) ?? { key, memory: stack.memory, challenger: stack.challenger ?? false, size: 0, learners: 0 };
      group.size = Math.max(group.size, stack.edges.length);
      group.learners = Math.max(group.learners, stack.learners ?? stack.edges.length);
      groups.set(key, group);
    }
  }
  const long = (group) => group.memory ?? Infinity;
  return [...groups.values()].sort((a, b) => a.challenger - b.challenger || long(b) - long(a));
}

function parse(text) {
  const [red, green, blue] = text.match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16));
  return [red, green, blue];
}

// A colour as one number, laid out in memory as canvases have it.
const pack = ([red, green, blue]) => new Uint32Array(new Uint8Array([red, green, blue, 255]).buffer)[0];

export class EdgeStrip extends RowChart {
  constructor(id) {
    const paint = (chart, u, context) => chart.paintStrip(u, context);
    paint.picks = true; // the cursor has a height: it picks a learner
    super(id, { range: () => ({ range: [0, 1] }), tick: null, paint });
    this.said = element("li", {});
    this.legend.prepend(this.said);
    this.ramp = element("canvas", { width: 2 * STEPS + 1, height: 1 });
    this.ramp.setAttribute("role", "img");
    this.ends = [element("span"), element("span")];
    document.getElementById(`${id}-ramp`).append(this.ends[0], this.ramp, this.ends[1]);
    this.groups = [];
    this.matrix = []; // by row, the edges of each group
    this.limit = 0.1;
  }

  show(observations, rows, events) {
    this.groups = groupsOf(observations);
    this.matrix = observations.map((one) => {
      const stacks = new Map((one.edges ?? []).map((s) => [`${s.memory}${s.challenger ? " challenger" : ""}`, s.edges]));
      return this.groups.map((group) => stacks.get(group.key) ?? []);
    });
    this.limit = LIMITS.find((limit) => limit >= this.usual()) ?? 1;
    this.update(this.groups.length ? rows : [], [], events, this.words());
    document.getElementById("edges-ramp").hidden = this.groups.length === 0;
  }

  // How far from 0 all but one edge in twenty are, judged by some fifty rows.
  usual() {
    const step = Math.ceil(this.matrix.length / 50);
    const some = this.matrix.filter((_, i) => i % step === 0 || i === this.matrix.length - 1);
    const sizes = some.flat(2).filter(isKnown).map(Math.abs).sort((a, b) => a - b);
    return sizes[Math.floor(0.95 * (sizes.length - 1))] ?? 0;
  }

  words() {
    const newest = this.matrix.at(-1) ?? [];
    const edges = newest.flat().filter(isKnown);
    if (edges.length === 0) return "No learner has been measured: this model has none, or none has learned.";
    const useful = edges.filter((edge) => edge > TINY).length;
    const harmful = edges.filter((edge) => edge < -TINY).length;
    const best = Math.max(...edges);
    const at = newest.findIndex((group) => group.includes(best));
    return `Each line is a learner, each colour how much of its targets it explains lately. Of ${many(edges.length, "learner")}, `
      + `${count(useful)} earn an edge above ${TINY}, ${count(harmful)} do harm (below −${TINY}). Strongest: `
      + `${this.learnerName(at, newest[at].indexOf(best))}, ${number(best)}.`;
  }

  learnerName(group, index) {
    const { memory, challenger, size, learners } = this.groups[group];
    const number = learners > size ? `${Math.floor((index * learners) / size) + 1}–${Math.floor(((index + 1) * learners) / size)}` : index + 1;
    return `learner ${number} of ${challenger ? "the challenger" : `memory ${memoryName(memory)}`}`;
  }

  // Where each group lies, in pixels of the canvas from the top of the plot.
  bands(height, ratio) {
    const total = this.groups.reduce((sum, group) => sum + group.size, 0);
    const room = height - GAP * ratio * Math.max(0, this.groups.length - 1);
    let top = 0;
    return this.groups.map((group) => {
      const band = { top, height: (room * group.size) / total };
      top += band.height + GAP * ratio;
      return band;
    });
  }

  shades() {
    const [none, plus, minus] = [parse(colour("edge-none")), parse(colour("edge-plus")), parse(colour("edge-minus"))];
    return Array.from({ length: 2 * STEPS + 1 }, (_, i) => {
      const t = (i - STEPS) / STEPS;
      const far = t > 0 ? plus : minus;
      return none.map((part, c) => Math.round(part + (far[c] - part) * Math.abs(t) ** 0.8));
    });
  }

  paintStrip(u, context) {
    const { left, top, width, height } = u.bbox;
    const shades = this.shades();
    const bands = this.bands(height, window.devicePixelRatio);
    const columns = Math.max(1, Math.round(width));
    const seen = this.columnsOf(u, left, columns);
    context.save();
    context.imageSmoothingEnabled = false;
    this.groups.forEach((group, g) => {
      const picture = this.picture(g, group.size, columns, seen, shades);
      context.drawImage(picture, left, top + bands[g].top, width, bands[g].height);
      this.label(context, group, left, top + bands[g].top, bands[g].height);
    });
    context.restore();
    this.paintRamp(shades);
  }

  // For each column of pixels the observation that tells of these rows: the first at or after them.
  columnsOf(u, left, columns) {
    const ends = this.rows.map((row) => u.valToPos(row, "x", true) - left);
    let i = 0;
    return Array.from({ length: columns }, (_, x) => {
      while (i < ends.length - 1 && ends[i] < x) i++;
      return i;
    });
  }

  picture(g, size, columns, seen, shades) {
    const canvas = element("canvas", { width: columns, height: size });
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, size);
    const pixels = new Uint32Array(image.data.buffer);
    const packed = shades.map(pack);
    for (let x = 0; x < columns; x++) {
      const edges = this.matrix[seen[x]][g];
      for (let y = 0; y < edges.length; y++) {
        if (!isKnown(edges[y])) continue;
        const t = Math.min(Math.max(edges[y] / this.limit, -1), 1);
        pixels[y * columns + x] = packed[Math.round(t * STEPS) + STEPS];
      }
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  label(context, group, left, top, height) {
    const ratio = window.devicePixelRatio;
    context.fillStyle = colour("muted");
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.font = `${(group.challenger ? 11 : 12) * ratio}px system-ui, sans-serif`;
    const text = group.challenger ? "challenger" : group.memory === null ? "all rows" : count(group.memory);
    context.fillText(text, left - 6 * ratio, top + height / 2);
  }

  paintRamp(shades) {
    const context = this.ramp.getContext("2d");
    shades.forEach((shade, x) => {
      context.fillStyle = `rgb(${shade.join(" ")})`;
      context.fillRect(x, 0, 1, 1);
    });
    const limit = number(this.limit);
    this.ends[0].textContent = `−${limit} harm`;
    this.ends[1].textContent = `+${limit} useful`;
    this.ramp.setAttribute("aria-label", `Colours: from −${limit}, harm, over 0, nothing, to ${limit}, useful`);
  }

  // The learner under the cursor: [group, index], or null if it is in a gap.
  picked() {
    const top = this.plot?.cursor.top ?? -1;
    if (top < 0 || !this.isMine) return null;
    const bands = this.bands(this.plot.over.clientHeight, 1);
    const g = bands.findIndex((band) => top >= band.top && top < band.top + band.height);
    if (g < 0) return null;
    return [g, Math.min(this.groups[g].size - 1, Math.floor(((top - bands[g].top) / bands[g].height) * this.groups[g].size))];
  }

  // Whether the cursor was put here, not in another chart.
  get isMine() {
    return this.box.matches(":hover") || this.held !== null;
  }

  onOtherKey(key) {
    if (key !== "ArrowUp" && key !== "ArrowDown") return false;
    const bands = this.bands(this.plot.over.clientHeight, 1);
    const all = this.groups.flatMap((group, g) => Array.from({ length: group.size }, (_, i) => [g, i]));
    const [g, i] = this.picked() ?? [0, 0];
    const at = all.findIndex((one) => one[0] === g && one[1] === i) + (key === "ArrowUp" ? -1 : 1);
    const [to, index] = all[Math.min(Math.max(at, 0), all.length - 1)];
    this.top = bands[to].top + (bands[to].height * (index + 0.5)) / this.groups[to].size;
    this.held ??= this.rows.at(-1);
    this.moveTo(this.nearest(this.held));
    return true;
  }

  moveTo(index) {
    super.moveTo(index, this.top);
  }

  say(index) {
    const edges = this.matrix[index];
    const pick = this.picked();
    const parts = pick === null
      ? this.groups.map((group, g) => `${group.challenger ? "challenger" : group.memory === null ? "all rows" : count(group.memory)}\u00a0${two(median(edges[g]))}`)
      : [`${capital(this.learnerName(...pick))}: edge ${number(edges[pick[0]][pick[1]] ?? null)}`];
    this.said.textContent = pick === null ? `median edge by memory: ${parts.join(", ")}` : parts[0];
    return parts;
  }
}

const two = (value) => (value === null ? "–" : number(Number(value.toPrecision(2))));

function median(values) {
  const known = values.filter(isKnown).sort((a, b) => a - b);
  return known.length ? known[Math.floor(known.length / 2)] : null;
}
