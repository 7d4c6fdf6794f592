// How wide a drawing is: as its place, and on paper as a page.
export const PAPER = 760; // pixels

/** Says how wide a place is, as soon as it is seen and each time that changes; before it is printed, as wide as paper,
 * also where it is hidden. */
export function onWidth(place: HTMLElement, show: (width: number) => void): void {
  let width = 0;
  const set = (now: number): void => {
    if (!now || now === width) return; // it is hidden, or nothing changed
    width = now;
    show(now);
  };
  new ResizeObserver(([entry]) => set(Math.floor(entry!.contentRect.width))).observe(place);
  const paper = new AbortController();
  const ifThere = (say: () => void) => (): void => (place.isConnected ? say() : paper.abort());
  const { signal } = paper;
  addEventListener(
    "beforeprint",
    ifThere(() => set(Math.min(PAPER, place.clientWidth || PAPER))),
    { signal },
  );
  addEventListener(
    "afterprint",
    ifThere(() => set(place.clientWidth)),
    { signal },
  );
}
