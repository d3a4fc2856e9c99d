// Light and dark: what the system says, unless the reader has said otherwise; and colours for canvases.

const STORE = "streamboost-theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const painters = new Set();
let cached = null;

function remembered() {
  try {
    return window.localStorage.getItem(STORE);
  } catch {
    return null; // storage is switched off
  }
}

function remember(choice) {
  try {
    window.localStorage.setItem(STORE, choice);
  } catch {
    // then it holds until the page is closed
  }
}

export const isDark = () => document.documentElement.dataset.theme === "dark";

// The colour of a CSS variable, as canvases want it.
export function colour(name) {
  cached ??= window.getComputedStyle(document.documentElement);
  return cached.getPropertyValue(`--${name}`).trim();
}

// Call `painter` whenever colours change.
export const onTheme = (painter) => painters.add(painter);

function apply(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").setAttribute("aria-pressed", String(isDark()));
  cached = null;
  for (const painter of painters) painter();
}

export function startTheme() {
  const wished = () => {
    const choice = remembered();
    return choice === "dark" || choice === "light" ? choice : dark.matches ? "dark" : "light";
  };
  document.getElementById("theme").addEventListener("click", () => {
    apply(isDark() ? "light" : "dark");
    remember(document.documentElement.dataset.theme);
  });
  dark.addEventListener("change", () => apply(wished()));
  apply(wished());
}
