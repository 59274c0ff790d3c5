import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** A head's report, drawn: risk against coverage, calibration, accepted error rates. */
import { Chart } from "../../components/Chart.js";
import { Badge, Card } from "../../components/Layout.js";
import { Meter, Parts } from "../../components/Meter.js";
import { Table } from "../../components/Table.js";
import { count, percent } from "../../format.js";
import { trialOf } from "./types.js";
const HEIGHT = 260;
const COLOURS = 6;
/** Errors among the surest part of the rows, by each signal of confidence. */
export function RiskCard({ figures }) {
    const curves = ordered(figures.risk_coverage ?? [], figures.accept_by);
    const [first] = curves;
    if (first === undefined)
        return null;
    const series = curves.slice(0, COLOURS).map((curve, index) => ({
        label: curve.signal.replaceAll("_", " "),
        colour: (index + 1),
        values: curve.risk.map((risk) => risk * 100),
        dashed: index > 0,
    }));
    return (_jsxs(Card, { title: "Risk against coverage", note: figures.rows ? `${count(figures.rows)} test rows` : undefined, children: [_jsx(Chart, { label: `Share of errors among the surest part of the rows, by ${curves.length} signals of confidence. By ${first.signal}, ${percent(first.risk[4] ?? 0, 1)} of the surest half are wrong, and ${percent(first.risk.at(-1) ?? 0, 1)} of all.`, x: first.coverage.map((share) => share * 100), xLabel: "part of the rows, the surest first, %", yLabel: "wrong among them, %", series: series, height: HEIGHT, xRange: [0, 100], format: (value) => `${Number(value.toFixed(1))}` }), _jsxs("p", { class: "note", children: ["The lower, the better a signal tells right from wrong labels. Labels are accepted by ", _jsx("b", { children: figures.accept_by?.replaceAll("_", " ") }), "."] })] }));
}
function ordered(curves, first) {
    return [...curves].sort((a, b) => Number(b.signal === first) - Number(a.signal === first));
}
/** The confidence that answers carry, against how many of them were right. */
export function CalibrationCard({ figures }) {
    const bins = figures.calibration ?? [];
    if (bins.length === 0)
        return null;
    const x = [0, ...bins.map((bin) => bin.confidence * 100), 100];
    const rows = bins.reduce((sum, bin) => sum + bin.rows, 0);
    const off = bins.reduce((sum, bin) => sum + (bin.rows / rows) * Math.abs(bin.accuracy - bin.confidence), 0);
    return (_jsxs(Card, { title: "Calibration", note: `off by ${percent(off, 1)} on average`, children: [_jsx(Chart, { label: `Confidence against accuracy in ${bins.length} bins; they differ by ${percent(off, 1)} on average.`, x: x, xLabel: "confidence, %", yLabel: "right, %", yRange: [0, 100], xRange: [0, 100], series: [
                    { label: "measured", colour: 1, kind: "points", values: [null, ...bins.map((bin) => bin.accuracy * 100), null] },
                    { label: "as it should be", colour: 6, dashed: true, values: x },
                ], height: HEIGHT, format: (value) => value.toFixed(0) }), _jsx("p", { class: "note", children: "Each point is the test rows of one interval of confidence. On the dashed line a label of 80 % is right 8 times in 10." })] }));
}
/** What each accepted error rate came to on the test rows. */
export function AcceptedCard({ figures }) {
    const rows = figures.accepted ?? [];
    if (rows.length === 0)
        return null;
    return (_jsxs(Card, { title: "Accepted error rates", note: "asked for, and reached on the test rows", flush: true, children: [_jsx(Table, { caption: "Accepted error rates", rows: rows, rowKey: (row) => String(row.asked), columns: [
                    { title: "Asked for", numeric: true, width: "96px", cell: (row) => `≤ ${percent(row.asked, 0)}` },
                    {
                        title: "Labels given",
                        cell: (row) => (_jsxs("span", { class: "metered", children: [_jsx(Meter, { label: `Labels given at ${percent(row.asked, 0)}`, value: row.coverage, text: percent(row.coverage, 1) }), _jsx("span", { children: percent(row.coverage, 1) })] })),
                    },
                    {
                        title: "Wrong among them",
                        numeric: true,
                        cell: (row) => (_jsxs(_Fragment, { children: [percent(row.risk, 1), " ", _jsx(Badge, { tone: row.risk <= row.asked ? "good" : "warning", children: row.risk <= row.asked ? "kept" : "above" })] })),
                    },
                ] }), (figures.calibration ?? []).length === 0 && (_jsx("p", { class: "card-foot note", children: "Confidence against accuracy is drawn of heads trained from now on: this one was measured before." }))] }));
}
/** How often the canary and the stable version gave the same label, and how often it failed. */
export function AgreementCard({ workers, head, share }) {
    const trial = trialOf(workers, head) ?? { passed: 0, failed: 0 };
    const agreed = trial.agreed ?? 0;
    const compared = agreed + (trial.differed ?? 0);
    const rows = workers.flatMap((worker) => {
        const own = worker.heads?.find((one) => one.name === head)?.trial;
        return own ? [{ worker: worker.worker, trial: own }] : [];
    });
    return (_jsx(Card, { title: "Canary and stable", note: `the canary gets ${percent(share)} of the jobs`, children: _jsxs("div", { class: "stack", children: [compared > 0 ? (_jsx(Parts, { label: "Labels of the canary", parts: [
                        { label: "the same label", value: agreed, text: `${count(agreed)} (${percent(agreed / compared, 1)})`, colour: 3 },
                        { label: "another label", value: compared - agreed, text: count(compared - agreed), colour: 2 },
                    ] })) : (_jsx("p", { class: "note", children: "Nothing was classified by the canary yet. Its labels are compared with those of the stable version as jobs come." })), rows.length > 0 && (_jsx(Table, { caption: "Counts of the canary by worker", rows: rows, rowKey: (row) => row.worker, columns: [
                        { title: "Worker", cell: (row) => _jsx("code", { class: "wrap", children: row.worker }) },
                        { title: "Jobs passed", numeric: true, cell: (row) => count(row.trial.passed) },
                        { title: "Failed", numeric: true, cell: (row) => count(row.trial.failed) },
                        { title: "Agreed", numeric: true, minor: true, cell: (row) => count(row.trial.agreed ?? 0) },
                        { title: "Differed", numeric: true, minor: true, cell: (row) => count(row.trial.differed ?? 0) },
                    ] }))] }) }));
}
/** All single figures of a head, of which those in [0, 1] or in per cent are drawn. */
export function MetricsCard({ figures }) {
    const rows = Object.entries(figures.metrics ?? {}).filter(([name]) => !name.includes("/"));
    if (rows.length === 0)
        return null;
    return (_jsx(Card, { title: "Measured", note: "on texts that were not trained on", flush: true, children: _jsx(Table, { caption: "Figures of the head", rows: rows, rowKey: ([name]) => name, columns: [
                { title: "Figure", cell: ([name]) => name.replaceAll("_", " ") },
                {
                    title: "Share",
                    minor: true,
                    width: "40%",
                    cell: ([name, value]) => (isShare(name, value) ? _jsx(Meter, { label: name, value: scaled(value), text: shown(name, value) }) : null),
                },
                { title: "Value", numeric: true, cell: ([name, value]) => shown(name, value) },
            ] }) }));
}
function isShare(name, value) {
    return !/rows|threshold|temperature/.test(name) && value >= 0 && value <= 100;
}
function scaled(value) {
    return value > 1 ? value / 100 : value;
}
function shown(name, value) {
    if (name.includes("rows"))
        return count(value);
    return isShare(name, value) ? percent(scaled(value), 1) : value.toFixed(2);
}
