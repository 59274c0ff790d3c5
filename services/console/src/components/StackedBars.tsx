/**
 * Counts over time as stacked bars, of which a range can be brushed.
 *
 * Drawn as SVG, so that colours are those of the style sheet and every bar is a part of the page.
 * By pointer a range is dragged. By keyboard arrows move along the bars, with Shift they select, and
 * Enter takes the range.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { count } from "../format.js";
import { countTicks, momentText, timeTicks } from "./ticks.js";

export interface Layer {
  label: string;
  /** Name of a class that gives the colour. */
  tone: string;
  counts: readonly number[];
}

interface Props {
  /** What is counted, in a few words. */
  label: string;
  /** Name of the vertical axis, with its unit. */
  yLabel: string;
  /** When the intervals begin, Unix seconds, ascending. */
  starts: readonly number[];
  intervalS: number;
  layers: readonly Layer[];
  height?: number;
  onBrush: (from: number, to: number) => void;
}

const LEFT = 52;
const RIGHT = 12;
const TOP = 8;
const BOTTOM = 22;

export function StackedBars({ label, yLabel, starts, intervalS, layers, height = 150, onBrush }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame);
  const [cursor, setCursor] = useState<number | null>(null);
  const [anchor, setAnchor] = useState<number | null>(null);
  const dragging = useRef(false);

  const bars = starts.length;
  const totals = starts.map((_, bar) => layers.reduce((sum, layer) => sum + (layer.counts[bar] ?? 0), 0));
  const ticks = countTicks(Math.max(1, ...totals));
  const top = ticks[ticks.length - 1] ?? 1;
  const inner = { width: Math.max(1, width - LEFT - RIGHT), height: height - TOP - BOTTOM };
  const first = starts[0] ?? 0;
  const span = Math.max(intervalS, bars * intervalS);
  const x = (time: number) => LEFT + ((time - first) / span) * inner.width;
  const y = (value: number) => TOP + inner.height * (1 - value / top);
  const wide = inner.width / Math.max(1, bars);

  const barAt = (event: PointerEvent): number => {
    const left = frame.current?.getBoundingClientRect().left ?? 0;
    const at = Math.floor((event.clientX - left - LEFT) / wide);
    return Math.max(0, Math.min(bars - 1, at));
  };
  const take = () => {
    if (cursor === null) return;
    const from = Math.min(cursor, anchor ?? cursor);
    const to = Math.max(cursor, anchor ?? cursor) + 1;
    setAnchor(null);
    setCursor(null);
    onBrush(first + from * intervalS, first + to * intervalS);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, Home: -bars, End: bars };
    const step = steps[event.key];
    if (step !== undefined && bars > 0) {
      event.preventDefault();
      const next = Math.max(0, Math.min(bars - 1, (cursor ?? (step > 0 ? -1 : bars)) + step));
      setAnchor(event.shiftKey ? (anchor ?? cursor ?? next) : null);
      setCursor(next);
    } else if (event.key === "Enter" && cursor !== null) {
      event.preventDefault();
      take();
    } else if (event.key === "Escape" && cursor !== null) {
      setAnchor(null);
      setCursor(null);
    }
  };

  const chosen = cursor === null ? null : [Math.min(cursor, anchor ?? cursor), Math.max(cursor, anchor ?? cursor) + 1] as const;
  return (
    <figure class="bars">
      <div
        ref={frame}
        class="bars-frame"
        role="group"
        tabIndex={0}
        aria-label={`${label}. Arrows move along the bars, Shift selects, Enter zooms in.`}
        onKeyDown={onKeyDown}
        onBlur={() => {
          setCursor(null);
          setAnchor(null);
        }}
        onPointerDown={(event) => {
          if (event.button !== 0 || bars === 0) return;
          dragging.current = true;
          frame.current?.setPointerCapture(event.pointerId);
          const at = barAt(event);
          setCursor(at);
          setAnchor(at);
        }}
        onPointerMove={(event) => {
          if (bars === 0) return;
          if (!dragging.current && event.pointerType === "touch") return;
          setCursor(barAt(event));
        }}
        onPointerUp={(event) => {
          if (!dragging.current) return;
          dragging.current = false;
          frame.current?.releasePointerCapture(event.pointerId);
          take();
        }}
        onPointerCancel={() => {
          dragging.current = false;
          setAnchor(null);
          setCursor(null);
        }}
        onPointerLeave={() => {
          if (!dragging.current) setCursor(null);
        }}
      >
        <svg class="bars-chart" width={width} height={height} aria-hidden="true">
          {ticks.map((tick) => (
            <g key={tick}>
              <line class="bars-grid" x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
              <text class="bars-text" x={LEFT - 8} y={y(tick) + 4} text-anchor="end">
                {count(tick)}
              </text>
            </g>
          ))}
          {timeTicks(first, first + span, Math.max(2, Math.floor(inner.width / 84))).map((tick) => (
            <g key={tick.at}>
              <line class="bars-tick" x1={x(tick.at)} x2={x(tick.at)} y1={TOP + inner.height} y2={TOP + inner.height + 4} />
              <text class="bars-text" x={x(tick.at)} y={height - 5} text-anchor="middle">
                {tick.text}
              </text>
            </g>
          ))}
          {chosen !== null && (
            <rect
              class={anchor === null ? "bars-cursor" : "bars-brush"}
              x={LEFT + chosen[0] * wide}
              width={(chosen[1] - chosen[0]) * wide}
              y={TOP}
              height={inner.height}
            />
          )}
          <Stacks layers={layers} left={(bar) => LEFT + bar * wide} wide={wide} y={y} bars={bars} />
        </svg>
        {cursor !== null && (
          <Tooltip
            at={LEFT + (cursor + 0.5) * wide}
            width={width}
            title={rangeText(starts, intervalS, chosen)}
            layers={layers}
            chosen={chosen}
          />
        )}
      </div>
      <figcaption class="bars-caption">
        <span class="bars-unit">{yLabel}</span>
        {layers.length > 1 && (
          <ul class="legend">
            {layers.map((layer) => (
              <li key={layer.label}>
                <span class={`swatch ${layer.tone}`} />
                {layer.label} <b>{count(layer.counts.reduce((sum, one) => sum + one, 0))}</b>
              </li>
            ))}
          </ul>
        )}
      </figcaption>
      <div class="visually-hidden" aria-live="polite">
        {cursor !== null && `${rangeText(starts, intervalS, chosen)}: ${count(sumOf(totals, chosen))}`}
      </div>
    </figure>
  );
}

interface StacksProps {
  layers: readonly Layer[];
  bars: number;
  left: (bar: number) => number;
  wide: number;
  y: (value: number) => number;
}

function Stacks({ layers, bars, left, wide, y }: StacksProps) {
  const gap = wide > 6 ? 1.5 : wide > 3 ? 1 : 0;
  const heights = new Array<number>(bars).fill(0);
  return (
    <>
      {layers.map((layer) => (
        <g key={layer.label} class={`bars-layer ${layer.tone}`}>
          {layer.counts.map((value, bar) => {
            if (value === 0) return null;
            const low = heights[bar] ?? 0;
            heights[bar] = low + value;
            // A bar of one line beside one of thousands is still seen.
            const tall = Math.max(1.5, y(low) - y(low + value));
            return <rect key={bar} x={left(bar) + gap / 2} y={y(low) - tall} width={Math.max(1, wide - gap)} height={tall} />;
          })}
        </g>
      ))}
    </>
  );
}

type Chosen = readonly [number, number] | null;

function Tooltip({ at, width, title, layers, chosen }: { at: number; width: number; title: string; layers: readonly Layer[]; chosen: Chosen }) {
  const rows = layers.map((layer) => ({ ...layer, lines: sumOf(layer.counts, chosen) })).filter((row) => row.lines > 0);
  // It stands at the other end, so as not to hide the bars that are looked at.
  const place = at > width / 2 ? { left: `${LEFT + 8}px` } : { right: `${RIGHT + 8}px` };
  return (
    <div class="bars-tooltip" style={place} aria-hidden="true">
      <b>{title}</b>
      {rows.length === 0 && <span>none</span>}
      {rows.map((row) => (
        <span key={row.label}>
          <span class={`swatch ${row.tone}`} /> {row.label} <b>{count(row.lines)}</b>
        </span>
      ))}
    </div>
  );
}

function sumOf(counts: readonly number[], chosen: Chosen): number {
  if (chosen === null) return 0;
  return counts.slice(chosen[0], chosen[1]).reduce((sum, one) => sum + one, 0);
}

function rangeText(starts: readonly number[], intervalS: number, chosen: Chosen): string {
  if (chosen === null) return "";
  const from = starts[chosen[0]] ?? 0;
  const to = (starts[chosen[1] - 1] ?? 0) + intervalS;
  return `${momentText(from, intervalS)} – ${momentText(to, intervalS, from)}`;
}

function useWidth(frame: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(600);
  useEffect(() => {
    const element = frame.current;
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    setWidth(element.clientWidth);
    return () => observer.disconnect();
  }, []);
  return width;
}
