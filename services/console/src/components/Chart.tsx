/** Charts by uPlot: axes have names and units, a table stands behind them for screen readers. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { dark } from "../theme.js";
import { colourOf } from "./colours.js";

export interface Series {
  label: string;
  /** One of the series colours, 1 to 6. */
  colour: 1 | 2 | 3 | 4 | 5 | 6;
  values: readonly (number | null)[];
  kind?: "line" | "bars" | "points";
  dashed?: boolean;
}

interface Props {
  /** What the chart shows, in a sentence. */
  label: string;
  x: readonly number[];
  /** Name of the horizontal axis, with its unit. */
  xLabel: string;
  yLabel: string;
  series: readonly Series[];
  height?: number;
  /** `time`: x is in Unix seconds. */
  xKind?: "time" | "number";
  format?: (value: number) => string;
  formatX?: (value: number) => string;
  /** Called with the range that was brushed, in units of x. */
  onBrush?: (from: number, to: number) => void;
  yRange?: [number, number];
  xRange?: [number, number];
}

export function Chart(props: Props) {
  const home = useRef<HTMLDivElement>(null);
  const isDark = dark.value;
  const shape = JSON.stringify([props.series.map((one) => [one.label, one.kind, one.colour]), props.height, props.xKind, isDark]);

  const chart = useRef<uPlot | null>(null);
  const brushed = useRef(props.onBrush);
  brushed.current = props.onBrush;

  useEffect(() => {
    const element = home.current;
    if (element === null) return undefined;
    const made = new uPlot(optionsOf(props, element, brushed), dataOf(props), element);
    chart.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: props.height ?? 180 }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [shape]);

  useEffect(() => chart.current?.setData(dataOf(props)), [props.x, props.series]);

  return (
    <figure class="chart" aria-label={props.label} role="figure">
      <div ref={home} class={props.onBrush ? "chart-canvas brush" : "chart-canvas"} />
      <figcaption class="visually-hidden">{props.label}</figcaption>
    </figure>
  );
}

function dataOf(props: Props): uPlot.AlignedData {
  return [[...props.x], ...props.series.map((one) => [...one.values])] as uPlot.AlignedData;
}

function optionsOf(props: Props, element: HTMLElement, brushed: { current: Props["onBrush"] }): uPlot.Options {
  const colour = (name: string) => colourOf(element, name);
  const ink = colour("--ink-2");
  const grid = { stroke: colour("--line"), width: 1 };
  const format = props.format ?? ((value: number) => value.toLocaleString("en"));
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: ink, font, labelFont: font, grid, ticks: { ...grid, size: 4 } };
  return {
    width: element.clientWidth,
    height: props.height ?? 180,
    legend: { show: props.series.length > 1 },
    cursor: { drag: { x: props.onBrush !== undefined, y: false, setScale: false }, y: false },
    scales: {
      x: { time: props.xKind === "time", ...(props.xRange ? { range: props.xRange } : {}) },
      y: { range: props.yRange ?? ((_, __, most) => [0, most > 0 ? most * 1.08 : 1]) },
    },
    axes: [
      {
        ...axis,
        label: props.xLabel,
        labelSize: 20,
        ...(props.formatX ? { values: (_: uPlot, ticks: number[]) => ticks.map((tick) => props.formatX?.(tick) ?? "") } : {}),
      },
      {
        ...axis,
        label: props.yLabel,
        labelSize: 20,
        size: 56,
        values: (_, ticks) => ticks.map(format),
      },
    ],
    series: [
      { label: props.xLabel },
      ...props.series.map((one) => ({
        label: one.label,
        stroke: colour(`--series-${one.colour}`),
        width: one.kind === "points" ? 0 : 1.5,
        ...(one.dashed ? { dash: [5, 4] } : {}),
        ...(one.kind === "bars"
          ? { fill: colour(`--series-${one.colour}`), paths: uPlot.paths.bars?.({ size: [0.85, 60] }) as uPlot.Series.PathBuilder }
          : {}),
        points: { show: one.kind === "points", size: 8, fill: colour(`--series-${one.colour}`) },
        value: (_: uPlot, value: number | null) => (value === null || value === undefined ? "–" : format(value)),
      })),
    ],
    hooks: {
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return;
          const from = plot.posToVal(plot.select.left, "x");
          const to = plot.posToVal(plot.select.left + plot.select.width, "x");
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          brushed.current?.(from, to);
        },
      ],
    },
  };
}
