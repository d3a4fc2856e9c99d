// Numbers, times and names as people read them.

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export const isKnown = known;

// 12,345 and 1.2 M
export function count(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trimmed(value / 1e9)}\u00a0bn`;
  if (size >= 1e6) return `${trimmed(value / 1e6)}\u00a0M`;
  return Math.round(value).toLocaleString("en-US");
}

// The same for axes: 12 k, and 0.90 beside 0.95
export function short(value, decimals = 0) {
  if (!known(value)) return "";
  const size = Math.abs(value);
  if (size >= 1e6) return count(value);
  if (size >= 1e4) return `${trimmed(value / 1e3)}\u00a0k`;
  return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: Math.max(6, decimals) });
}

const trimmed = (value) => value.toLocaleString("en-US", { maximumFractionDigits: Math.abs(value) < 100 ? 2 : 0 });

// Four digits: 0.9312, 47,166, 0.0001668
export function number(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return count(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size !== 0 && size < 1e-5) return value.toExponential(2).replace("-", "−").replace("e−", "e-");
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 }).replace("-", "−");
}

export const share = (value) => (known(value) ? `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}\u00a0%` : "–");

export const milliseconds = (value) =>
  known(value) ? `${value.toLocaleString("en-US", { maximumSignificantDigits: value < 100 ? 2 : 3 })}\u00a0ms` : "–";

export const clock = (seconds) => (known(seconds) ? new Date(1000 * seconds).toLocaleTimeString("en-GB") : "–");

export const day = (seconds) => (known(seconds) ? new Date(1000 * seconds).toLocaleDateString("en-CA") : "");

export const many = (n, thing, things = `${thing}s`) => `${count(n)} ${n === 1 ? thing : things}`;

const METRICS = {
  rmse: "RMSE", mae: "MAE", r2: "R²", accuracy: "accuracy", kappa: "Cohen’s κ", log_loss: "log loss", auc: "AUC",
};

export const metricName = (name) => (Object.hasOwn(METRICS, name) ? METRICS[name] : name);

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const memoryName = (memory) => (memory === null ? "all rows" : `${count(memory)} rows`);
