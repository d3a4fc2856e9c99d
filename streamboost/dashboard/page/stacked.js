// Shares over rows as stacked areas, named where there is room, and as bars for the row at the cursor.

import { share } from "./format.js";
import { colour } from "./theme.js";
import { RowChart, element } from "./charts.js";

const OTHERS = "others";

// The keys of greatest mean share, and all else together. observed: a Map of key to share for each row.
export function leaders(observed, most) {
  const totals = new Map();
  for (const shares of observed) for (const [key, value] of shares) totals.set(key, (totals.get(key) ?? 0) + value);
  const ranked = [...totals].sort((a, b) => b[1] - a[1]).map(([key]) => key);
  // what matters now is shown even if it did not matter for long
  const now = [...(observed.at(-1) ?? [])].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([key]) => key);
  const first = [...new Set([...now, ...ranked])].slice(0, most);
  return { keys: ranked.filter((key) => first.includes(key)), hasOthers: ranked.length > first.length };
}

export class StackedChart extends RowChart {
  constructor(id) {
    const paint = (chart, u, context) => chart.paintAreas(u, context);
    super(id, { range: () => ({ range: [0, 1] }), tick: (value) => `${Math.round(100 * value)} %`, paint });
    this.bars = document.getElementById(`${id}-bars`);
    this.layers = []; // {key, label, colour, values}
  }

  // observed: a Map of key to share for each row; look: key to {label, colour}; order: which key lies below which
  show(rows, observed, events, words, { most, look, order = null }) {
    const { keys, hasOthers } = leaders(observed, most);
    if (order !== null) keys.sort(order);
    this.layers = keys.map((key) => ({ key, ...look(key, keys), values: observed.map((one) => one.get(key) ?? 0) }));
    if (hasOthers) {
      const values = observed.map((one, i) => {
        const all = [...one.values()].reduce((sum, value) => sum + value, 0);
        return Math.max(0, all - this.layers.reduce((sum, layer) => sum + layer.values[i], 0));
      });
      this.layers.push({ key: OTHERS, label: OTHERS, colour: "others", values });
    }
    this.makeBars();
    this.bars.hidden = this.layers.length === 0;
    this.update(this.layers.length ? rows : [], [], events, words);
  }

  paintAreas(u, context) {
    const { left, top, width, height } = u.bbox;
    const xs = this.rows.map((row) => u.valToPos(row, "x", true));
    const floor = xs.map(() => 0);
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    for (const layer of this.layers) {
      const lower = floor.map((value) => u.valToPos(value, "y", true));
      layer.values.forEach((value, i) => (floor[i] += value));
      const upper = floor.map((value) => u.valToPos(value, "y", true));
      this.paintArea(context, layer, xs, lower, upper, left);
    }
    context.restore();
  }

  paintArea(context, layer, xs, lower, upper, left) {
    context.fillStyle = colour(layer.colour);
    context.strokeStyle = colour("panel");
    context.lineWidth = window.devicePixelRatio / 2;
    context.beginPath();
    context.moveTo(left, upper[0]); // what is seen first held for the rows before it
    xs.forEach((x, i) => context.lineTo(x, upper[i]));
    for (let i = xs.length - 1; i >= 0; i--) context.lineTo(xs[i], lower[i]);
    context.lineTo(left, lower[0]);
    context.closePath();
    context.fill();
    context.stroke();
    this.name(context, layer, xs, lower, upper);
  }

  // Write a layer's name where it stays thick enough for the whole word.
  name(context, layer, xs, lower, upper) {
    const size = 11 * window.devicePixelRatio;
    context.font = `${size}px system-ui, sans-serif`;
    const text = layer.short ?? layer.label;
    const half = context.measureText(text).width / 2 + size / 2;
    let best = null;
    for (let i = 0; i < xs.length; i += Math.max(1, Math.floor(xs.length / 60))) {
      if (xs[i] - half < xs[0] || xs[i] + half > xs.at(-1)) continue;
      let [ceiling, ground] = [upper[i], lower[i]];
      const widen = (j) => {
        ceiling = Math.max(ceiling, upper[j]);
        ground = Math.min(ground, lower[j]);
      };
      for (let j = i - 1; j >= 0 && xs[i] - xs[j] <= half; j--) widen(j);
      for (let j = i + 1; j < xs.length && xs[j] - xs[i] <= half; j++) widen(j);
      if (best === null || ground - ceiling > best.room) best = { room: ground - ceiling, x: xs[i], y: (ground + ceiling) / 2 };
    }
    if (best === null || best.room < 1.2 * size) return;
    context.fillStyle = colour("on-area");
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, best.x, best.y);
  }

  makeBars() {
    const signature = this.layers.map((layer) => `${layer.key}/${layer.colour}`).join("\n");
    if (signature === this.signature) return;
    this.signature = signature;
    this.cells = this.layers.map((layer) => {
      const bar = element("span", { className: "bar" });
      bar.style.setProperty("--colour", `var(--${layer.colour})`);
      const value = element("span", { className: "value" });
      const name = element("th", { scope: "row", title: layer.label }, layer.label);
      return { bar, value, row: element("tr", {}, name, element("td", {}, bar), element("td", {}, value)) };
    });
    this.bars.tBodies[0].replaceChildren(...this.cells.map((cell) => cell.row));
  }

  say(index) {
    return this.layers.map((layer, i) => {
      const value = layer.values[index];
      this.cells[i].bar.style.setProperty("--share", String(value));
      this.cells[i].value.textContent = share(value);
      return `${layer.label} ${share(value)}`;
    });
  }
}
