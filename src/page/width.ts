// Tells drawings their width: the width of their element on the screen or, during printing, of the paper.
export const PAPER = 760; // in pixels

/** Calls `show` with the width of the element `place` when the element is first seen, and each time its width changes.
 * Before the page is printed, `show` gets the width on paper, even if the element is hidden. */
export function onWidth(place: HTMLElement, show: (width: number) => void): void {
  let width = 0;
  const set = (now: number): void => {
    if (!now || now === width) return; // the element is hidden, or its width has not changed
    width = now;
    show(now);
  };
  new ResizeObserver(([entry]) => set(Math.floor(entry!.contentRect.width))).observe(place);
  const paper = new AbortController();
  const whileConnected = (call: () => void) => (): void => (place.isConnected ? call() : paper.abort());
  const { signal } = paper;
  addEventListener(
    "beforeprint",
    whileConnected(() => set(Math.min(PAPER, place.clientWidth || PAPER))),
    { signal },
  );
  addEventListener(
    "afterprint",
    whileConnected(() => set(place.clientWidth)),
    { signal },
  );
}
