/** A map of up to 20,000 points: drag, zoom, point at, or move by the arrow keys. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "../../components/Button.js";
import { colourOf } from "../../components/colours.js";
import { dark } from "../../theme.js";
import { type Palette, type Size, type View, draw, neighbour, pixel, pointAt, ring, whole, zoomed } from "./canvas.js";
import type { Projected } from "./types.js";

interface Props {
  found: Projected;
  hidden: ReadonlySet<number>;
  selected: number | null;
  onSelect: (index: number | null) => void;
  /** What is said of a point. */
  nameOf: (index: number) => string;
}

const STEP = 1.5;
const STILL_PX = 4;
const ARROWS: Record<string, [number, number]> = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowUp: [0, 1],
  ArrowDown: [0, -1],
};

export function MapCanvas({ found, hidden, selected, onSelect, nameOf }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  const [view, setView] = useState<View | null>(null);
  const [over, setOver] = useState<number | null>(null);
  const dragged = useRef<{ left: number; top: number; view: View; moved: boolean } | null>(null);
  const isDark = dark.value;
  const shown = view ?? whole(found, size);

  useEffect(() => {
    const element = frame.current;
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => setView(null), [found]);

  useLayoutEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context || size.width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = Math.round(size.width * ratio);
    element.height = Math.round(size.height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const palette = paletteOf(element);
    const beganMs = performance.now();
    draw(context, found, shown, size, palette, hidden);
    element.dataset["drawMs"] = (performance.now() - beganMs).toFixed(1);
    for (const index of new Set([selected, over])) if (index !== null) ring(context, found, index, shown, size, palette);
  }, [found, shown.x, shown.y, shown.scale, size, hidden, selected, over, isDark]);

  // A passive listener, which Preact would make of it, could not keep the page from scrolling.
  useEffect(() => {
    const element = canvas.current;
    if (element === null) return undefined;
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      const box = element.getBoundingClientRect();
      setView((before) =>
        zoomed(before ?? whole(found, size), Math.exp(-event.deltaY / 400), size, event.clientX - box.left, event.clientY - box.top),
      );
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [found, size]);

  const place = (event: PointerEvent) => {
    const box = canvas.current?.getBoundingClientRect();
    return { left: event.clientX - (box?.left ?? 0), top: event.clientY - (box?.top ?? 0) };
  };
  const onMove = (event: PointerEvent) => {
    const { left, top } = place(event);
    const start = dragged.current;
    if (start === null) {
      setOver(pointAt(found, shown, size, left, top, hidden));
      return;
    }
    const [dx, dy] = [left - start.left, top - start.top];
    start.moved = start.moved || Math.hypot(dx, dy) > STILL_PX;
    if (start.moved) setView({ ...start.view, x: start.view.x - dx / start.view.scale, y: start.view.y + dy / start.view.scale });
  };
  const onUp = (event: PointerEvent) => {
    const start = dragged.current;
    dragged.current = null;
    if (start === null || start.moved) return;
    const { left, top } = place(event);
    onSelect(pointAt(found, shown, size, left, top, hidden));
  };
  const onKey = (event: KeyboardEvent) => {
    const arrow = ARROWS[event.key];
    if (arrow !== undefined) onSelect(selected === null ? 0 : neighbour(found, selected, ...arrow, hidden));
    else if (event.key === "+" || event.key === "=") setView(zoomed(shown, STEP, size));
    else if (event.key === "-") setView(zoomed(shown, 1 / STEP, size));
    else if (event.key === "0") setView(null);
    else if (event.key === "Escape") onSelect(null);
    else return;
    event.preventDefault();
  };

  const [x, y] = over === null ? [0, 0] : pixel(found, over, shown, size);
  return (
    <div class="map-frame" ref={frame}>
      <canvas
        ref={canvas}
        class={over === null ? "map-canvas" : "map-canvas pointing"}
        role="application"
        aria-roledescription="map"
        aria-label={`Map of ${found.ids.length} points. Arrow keys move from point to point, plus and minus zoom, 0 shows all. The table has the same points.`}
        aria-describedby="map-selected"
        tabIndex={0}
        data-points={found.ids.length}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          dragged.current = { ...place(event), view: shown, moved: false };
        }}
        onPointerMove={onMove}
        onPointerUp={onUp}
        onPointerLeave={() => setOver(null)}
        onKeyDown={onKey}
      />
      <p id="map-selected" class="visually-hidden" aria-live="polite">
        {selected === null ? "" : nameOf(selected)}
      </p>
      {over !== null && (
        <div class={x > size.width / 2 ? "map-tip left" : "map-tip"} style={{ left: `${x}px`, top: `${y}px` }}>
          {nameOf(over)}
        </div>
      )}
      <div class="map-zoom">
        <Button icon="plus" label="Zoom in" onClick={() => setView(zoomed(shown, STEP, size))} />
        <Button icon="minus" label="Zoom out" onClick={() => setView(zoomed(shown, 1 / STEP, size))} />
        <Button icon="refresh" label="Show all points" onClick={() => setView(null)} />
      </div>
    </div>
  );
}

/** How many colours a map has; the style names them `--map-1` and on. */
export const COLOURS = 12;

function paletteOf(element: HTMLCanvasElement): Palette {
  const home = element.parentElement ?? document.body;
  return {
    points: Array.from({ length: COLOURS }, (_, index) => colourOf(home, `--map-${index + 1}`)),
    none: colourOf(home, "--map-none"),
    grid: colourOf(home, "--line"),
    ink: colourOf(home, "--ink"),
  };
}
