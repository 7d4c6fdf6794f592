// Wheel, mouse, touch and keys, as what is asked for.
import type { View } from "./view.ts";

interface Asked {
  moved(): void; // the view was changed
  pointed(x: number, y: number, client: { x: number; y: number } | undefined): void;
  chosen(x: number, y: number): void;
  fitted(): void;
  stretch(from: number, to: number, isDone: boolean): void; // of time, between two x
  key(key: string): boolean; // whether it is one
}

const STEP = 0.15; // of the window, for a key
const ZOOM = 1.25;
const CLICK = 4; // pixels that a hand may shake

export function listen(canvas: HTMLCanvasElement, scroller: HTMLElement, view: View, asked: Asked): void {
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
      else return; // up and down scrolls the lanes
      event.preventDefault();
      asked.moved();
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
      asked.pointed(x, y, { x: event.clientX, y: event.clientY });
      return;
    }
    if (touches.size === 2) {
      pinch(event.pointerId, x);
      return;
    }
    hasMoved ||= Math.hypot(x - begun.x, event.clientY - begun.y) > CLICK;
    if (!hasMoved) return;
    asked.pointed(x, y, undefined);
    if (begun.isStretch) {
      asked.stretch(begun.x, x, false);
      return;
    }
    view.pan(last - x);
    last = x;
    if (event.pointerType === "mouse") scroller.scrollTop = begun.scrolled + begun.y - event.clientY;
    asked.moved();
  });
  function pinch(moved: number, x: number): void {
    const [other] = [...touches].find(([id]) => id !== moved)!.slice(1) as [number];
    const before = Math.max(8, Math.abs(touches.get(moved)! - other));
    touches.set(moved, x);
    hasMoved = true;
    view.zoom(before / Math.max(8, Math.abs(x - other)), (x + other) / 2);
    asked.moved();
  }
  const end = (event: PointerEvent): void => {
    touches.delete(event.pointerId);
    if (!begun || touches.size) return;
    const [x, y] = place(event);
    const { isStretch } = begun;
    const from = begun.x;
    begun = undefined;
    if (hasMoved && isStretch) asked.stretch(from, x, true);
    else if (!hasMoved && event.type === "pointerup") asked.chosen(x, y);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => asked.pointed(0, 0, undefined));
  canvas.addEventListener("dblclick", () => asked.fitted());

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const middle = view.width / 2;
    const move = MOVES[event.key] ?? MOVES[event.key.toLowerCase()];
    if (move) {
      if (move.zoom) view.zoom(move.zoom, middle);
      else view.pan((move.pan ?? 0) * view.width);
      asked.moved();
    } else if (!asked.key(event.key)) return;
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
