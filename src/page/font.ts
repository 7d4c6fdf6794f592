// The page's font, for text that no style sheet reaches: on a canvas.
export const fontOf = (pixels: number): string =>
  `${pixels}px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
