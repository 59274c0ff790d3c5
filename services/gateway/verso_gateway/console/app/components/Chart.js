import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Charts by uPlot: axes have names and units, a table stands behind them for screen readers. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { dark } from "../theme.js";
import { colourOf } from "./colours.js";
export function Chart(props) {
    const home = useRef(null);
    const isDark = dark.value;
    const shape = JSON.stringify([props.series.map((one) => [one.label, one.kind, one.colour]), props.height, props.xKind, isDark]);
    const chart = useRef(null);
    const brushed = useRef(props.onBrush);
    brushed.current = props.onBrush;
    useEffect(() => {
        const element = home.current;
        if (element === null)
            return undefined;
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
    return (_jsxs("figure", { class: "chart", "aria-label": props.label, role: "figure", children: [_jsx("div", { ref: home, class: props.onBrush ? "chart-canvas brush" : "chart-canvas" }), _jsx("figcaption", { class: "visually-hidden", children: props.label })] }));
}
function dataOf(props) {
    return [[...props.x], ...props.series.map((one) => [...one.values])];
}
function optionsOf(props, element, brushed) {
    const colour = (name) => colourOf(element, name);
    const ink = colour("--ink-2");
    const grid = { stroke: colour("--line"), width: 1 };
    const format = props.format ?? ((value) => value.toLocaleString("en"));
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
                ...(props.formatX ? { values: (_, ticks) => ticks.map((tick) => props.formatX?.(tick) ?? "") } : {}),
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
                    ? { fill: colour(`--series-${one.colour}`), paths: uPlot.paths.bars?.({ size: [0.85, 60] }) }
                    : {}),
                points: { show: one.kind === "points", size: 8, fill: colour(`--series-${one.colour}`) },
                value: (_, value) => (value === null || value === undefined ? "–" : format(value)),
            })),
        ],
        hooks: {
            setSelect: [
                (plot) => {
                    if (plot.select.width < 4)
                        return;
                    const from = plot.posToVal(plot.select.left, "x");
                    const to = plot.posToVal(plot.select.left + plot.select.width, "x");
                    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
                    brushed.current?.(from, to);
                },
            ],
        },
    };
}
