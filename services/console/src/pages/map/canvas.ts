/**
 * Points on a canvas.
 *
 * A view maps the plane to pixels: it shows `scale` pixels a unit, around (`x`, `y`). Points are
 * drawn colour by colour, so that a canvas changes its colour a dozen times, not 20,000.
 */

import type { Projected } from "./types.js";

export interface View {
  x: number;
  y: number;
  scale: number;
}

export interface Size {
  width: number;
  height: number;
}

export interface Palette {
  /** By number of the colour. */
  points: readonly string[];
  none: string;
  grid: string;
  ink: string;
}

const MARGIN = 24;
const REACH = 14;
const LARGEST = 9;

/** Return the view that shows all points. */
export function whole(found: Projected, size: Size): View {
  if (found.x.length === 0) return { x: 0, y: 0, scale: 1 };
  const [left, right] = range(found.x);
  const [bottom, top] = range(found.y);
  const across = Math.max(right - left, 1e-6);
  const up = Math.max(top - bottom, 1e-6);
  const scale = Math.min((size.width - 2 * MARGIN) / across, (size.height - 2 * MARGIN) / up);
  return { x: (left + right) / 2, y: (bottom + top) / 2, scale: Math.max(scale, 1e-6) };
}

/** Return a view that is larger or smaller by a factor, and keeps the point under (left, top). */
export function zoomed(view: View, factor: number, size: Size, left = size.width / 2, top = size.height / 2): View {
  const scale = Math.min(1e6, Math.max(1e-3, view.scale * factor));
  const [dx, dy] = [left - size.width / 2, size.height / 2 - top];
  return { x: view.x + dx / view.scale - dx / scale, y: view.y + dy / view.scale - dy / scale, scale };
}

/** Return the radius of a point, pixels: few points are larger, and statements of many lines. */
export function radius(found: Projected, index: number): number {
  const plain = found.ids.length > 5000 ? 1.6 : found.ids.length > 800 ? 2.4 : 3.6;
  const lines = found.lines?.[index];
  return lines === undefined ? plain : Math.min(LARGEST, plain + Math.log10(Math.max(1, lines)) * 1.5);
}

/** Draw all points; those of hidden colours are left out. */
export function draw(
  context: CanvasRenderingContext2D,
  found: Projected,
  view: View,
  size: Size,
  palette: Palette,
  hidden: ReadonlySet<number>,
): void {
  context.clearRect(0, 0, size.width, size.height);
  drawAxes(context, view, size, palette);
  const { x, y, colour, ids } = found;
  const byColour = new Map<number, number[]>();
  for (let index = 0; index < ids.length; index += 1) {
    const own = colour[index] ?? -1;
    const list = byColour.get(own);
    if (list === undefined) byColour.set(own, [index]);
    else list.push(index);
  }
  const small = ids.length > 5000 && found.lines === undefined;
  context.globalAlpha = small ? 0.75 : 0.85;
  for (const [own, list] of [...byColour].sort(([a], [b]) => a - b)) {
    if (hidden.has(own)) continue;
    context.fillStyle = own < 0 ? palette.none : (palette.points[own] ?? palette.none);
    context.beginPath();
    for (const index of list) {
      const left = (x[index]! - view.x) * view.scale + size.width / 2;
      const top = size.height / 2 - (y[index]! - view.y) * view.scale;
      if (left < -LARGEST || top < -LARGEST || left > size.width + LARGEST || top > size.height + LARGEST) continue;
      const r = radius(found, index);
      if (small) context.rect(left - r, top - r, 2 * r, 2 * r);
      else {
        context.moveTo(left + r, top);
        context.arc(left, top, r, 0, 2 * Math.PI);
      }
    }
    context.fill();
  }
  context.globalAlpha = 1;
}

function drawAxes(context: CanvasRenderingContext2D, view: View, size: Size, palette: Palette): void {
  context.strokeStyle = palette.grid;
  context.lineWidth = 1;
  const left = Math.round(-view.x * view.scale + size.width / 2) + 0.5;
  const top = Math.round(size.height / 2 + view.y * view.scale) + 0.5;
  context.beginPath();
  context.moveTo(left, 0);
  context.lineTo(left, size.height);
  context.moveTo(0, top);
  context.lineTo(size.width, top);
  context.stroke();
}

/** Draw a ring around a point. */
export function ring(context: CanvasRenderingContext2D, found: Projected, index: number, view: View, size: Size, palette: Palette): void {
  const [left, top] = pixel(found, index, view, size);
  context.strokeStyle = palette.ink;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(left, top, radius(found, index) + 4, 0, 2 * Math.PI);
  context.stroke();
}

/** Return where a point is drawn: pixels from the left and from the top. */
export function pixel(found: Projected, index: number, view: View, size: Size): [number, number] {
  return [
    ((found.x[index] ?? 0) - view.x) * view.scale + size.width / 2,
    size.height / 2 - ((found.y[index] ?? 0) - view.y) * view.scale,
  ];
}

/** Return the point under or next to a place; null where none is near. */
export function pointAt(
  found: Projected,
  view: View,
  size: Size,
  left: number,
  top: number,
  hidden: ReadonlySet<number>,
): number | null {
  let best: number | null = null;
  let least = REACH * REACH;
  for (let index = 0; index < found.ids.length; index += 1) {
    if (hidden.has(found.colour[index] ?? -1)) continue;
    const [x, y] = pixel(found, index, view, size);
    const away = (x - left) ** 2 + (y - top) ** 2;
    if (away < least) {
      least = away;
      best = index;
    }
  }
  return best;
}

/** Return the nearest point in a direction, for those who move by keys; (1, 0) is right. */
export function neighbour(found: Projected, from: number, across: number, up: number, hidden: ReadonlySet<number>): number {
  const [x, y] = [found.x[from] ?? 0, found.y[from] ?? 0];
  let best = from;
  let least = Number.POSITIVE_INFINITY;
  for (let index = 0; index < found.ids.length; index += 1) {
    if (index === from || hidden.has(found.colour[index] ?? -1)) continue;
    const [dx, dy] = [(found.x[index] ?? 0) - x, (found.y[index] ?? 0) - y];
    const along = dx * across + dy * up;
    const aside = Math.abs(dx * up - dy * across);
    if (along <= 1e-9 || aside > 2 * along) continue;
    const away = along + 2 * aside;
    if (away < least) {
      least = away;
      best = index;
    }
  }
  return best;
}

function range(values: readonly number[]): [number, number] {
  let least = Number.POSITIVE_INFINITY;
  let most = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return [least, most];
}
