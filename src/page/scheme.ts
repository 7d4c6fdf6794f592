// Light or dark: what the reader chose here, else what the machine prefers.
let changed: (() => void)[] = [];
const redraw = (): void => changed.forEach((call) => call());

export function isDark(): boolean {
  const chosen = document.documentElement.dataset.scheme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Called when light becomes dark or back: for what has colours that no style sheet changes. */
export function onScheme(call: () => void): void {
  changed.push(call);
}

/** Draws what has colours now, and again when light becomes dark or back. */
export function inColors(draw: () => void): void {
  draw();
  onScheme(draw);
}

export function switchScheme(): void {
  document.documentElement.dataset.scheme = isDark() ? "light" : "dark";
  redraw();
}

/** What was drawn is gone, and is not drawn again. */
export function forget(): void {
  changed = [];
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
