// Text on a canvas, where style sheets have no effect: its font, and a function that shortens it.
export const fontOf = (pixels: number): string =>
  `${pixels}px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;

/** Shortens a text that is `width` pixels wide, so that it fits into `room` pixels. Returns "" if fewer than two
 * letters would be left. */
export function cutTo(room: number, text: string, width: number): string {
  if (width <= room) return text;
  const letters = Math.floor((room / width) * text.length) - 1;
  return letters < 2 ? "" : `${text.slice(0, letters)}…`;
}
