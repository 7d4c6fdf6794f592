// The colour scheme, light or dark. The reader can choose it with a button. Otherwise the settings of the system
// decide.
let redraws: (() => void)[] = [];
const redrawAll = (): void => redraws.forEach((call) => call());

export function isDark(): boolean {
  const chosen = document.documentElement.dataset.scheme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Calls `call` each time the scheme changes. Drawings need this if their colours do not come from a style sheet. */
export function onScheme(call: () => void): void {
  redraws.push(call);
}

/** Calls `draw` now, and each time the scheme changes. */
export function drawInColors(draw: () => void): void {
  draw();
  onScheme(draw);
}

export function switchScheme(): void {
  document.documentElement.dataset.scheme = isDark() ? "light" : "dark";
  redrawAll();
}

/** Forgets the functions that `onScheme` got, because their drawings were removed from the page. */
export function forget(): void {
  redraws = [];
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
