// The page's font, for text that no style sheet reaches: on a canvas; and how much of a text has room.
export const fontOf = (pixels: number): string =>
  `${pixels}px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;

/** As much of a text, which is so wide, as there is room for; nothing where that would say nothing. */
export function cutTo(room: number, text: string, width: number): string {
  if (width <= room) return text;
  const letters = Math.floor((room / width) * text.length) - 1;
  return letters < 2 ? "" : `${text.slice(0, letters)}…`;
}
