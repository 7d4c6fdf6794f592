// Handles wheel, mouse, touch and keys. Changes the view when the reader moves or zooms it, and tells the `Listener`
// about the reader's actions.
import type { View } from "./view.ts";

interface Listener {
  onMove(): void; // called when the view has changed
  onPoint(x: number, y: number, client: { x: number; y: number } | undefined): void;
  onChoose(x: number, y: number): void;
  onFit(): void;
  onStretch(from: number, to: number, isDone: boolean): void; // called when the reader measures a time
  onKey(key: string): boolean; // returns false if the key has no meaning here
}

const STEP = 0.15; // how far a key moves the view, as a share of the view's width
const ZOOM = 1.25;
const CLICK = 4; // a press and a release are a click if the pointer moves by at most this number of pixels

export function listen(canvas: HTMLCanvasElement, scroller: HTMLElement, view: View, listener: Listener): void {
  const place = (event: MouseEvent): [number, number] => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  canvas.addEventListener(
    "wheel",
    (event) => {
      const [x] = place(event);
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      const sideways = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
      if (event.ctrlKey || event.metaKey) view.zoom(Math.exp((event.deltaY * lines) / 300), x);
      else if (Math.abs(sideways) > (event.shiftKey ? 0 : Math.abs(event.deltaY))) view.pan(sideways * lines);
      else return; // let the browser scroll the lanes
      event.preventDefault();
      listener.onMove();
    },
    { passive: false },
  );

  let begun: { x: number; y: number; scrolled: number; isStretch: boolean } | undefined;
  let last = 0;
  let hasMoved = false;
  const touches = new Map<number, number>();
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const [x] = place(event);
    touches.set(event.pointerId, x);
    begun = { x, y: event.clientY, scrolled: scroller.scrollTop, isStretch: event.shiftKey };
    last = x;
    hasMoved = false;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!begun) {
      listener.onPoint(x, y, { x: event.clientX, y: event.clientY });
      return;
    }
    if (touches.size === 2) {
      pinch(event.pointerId, x);
      return;
    }
    hasMoved ||= Math.hypot(x - begun.x, event.clientY - begun.y) > CLICK;
    if (!hasMoved) return;
    listener.onPoint(x, y, undefined);
    if (begun.isStretch) {
      listener.onStretch(begun.x, x, false);
      return;
    }
    view.pan(last - x);
    last = x;
    if (event.pointerType === "mouse") scroller.scrollTop = begun.scrolled + begun.y - event.clientY;
    listener.onMove();
  });
  function pinch(moved: number, x: number): void {
    const [other] = [...touches].find(([id]) => id !== moved)!.slice(1) as [number];
    const before = Math.max(8, Math.abs(touches.get(moved)! - other));
    touches.set(moved, x);
    hasMoved = true;
    view.zoom(before / Math.max(8, Math.abs(x - other)), (x + other) / 2);
    listener.onMove();
  }
  const end = (event: PointerEvent): void => {
    touches.delete(event.pointerId);
    if (!begun || touches.size) return;
    const [x, y] = place(event);
    const { isStretch } = begun;
    const from = begun.x;
    begun = undefined;
    if (hasMoved && isStretch) listener.onStretch(from, x, true);
    else if (!hasMoved && event.type === "pointerup") listener.onChoose(x, y);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => listener.onPoint(0, 0, undefined));
  canvas.addEventListener("dblclick", () => listener.onFit());

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const middle = view.width / 2;
    const move = MOVES[event.key] ?? MOVES[event.key.toLowerCase()];
    if (move) {
      if (move.zoom) view.zoom(move.zoom, middle);
      else view.pan((move.pan ?? 0) * view.width);
      listener.onMove();
    } else if (!listener.onKey(event.key)) return;
    event.preventDefault();
  });
}

const MOVES: Record<string, { zoom?: number; pan?: number }> = {
  w: { zoom: 1 / ZOOM },
  s: { zoom: ZOOM },
  "+": { zoom: 1 / ZOOM },
  "-": { zoom: ZOOM },
  a: { pan: -STEP },
  d: { pan: STEP },
  ArrowLeft: { pan: -STEP },
  ArrowRight: { pan: STEP },
};
