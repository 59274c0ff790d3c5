import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** One line of a log: time, level, where it is from, and its text with what was looked for. */
import { Highlight } from "../../components/Highlight.js";
import { lineTime } from "../../components/ticks.js";
import { Link } from "../../router.js";
import { textOf } from "./lines.js";
import { addressOfLine } from "./state.js";
import { levelTone } from "./types.js";
/** Heights of a row, pixels: of one line of text, and of two on narrow screens. */
export const ROW = { wide: 28, narrow: 50 };
export function LineRow({ line, contains = "", day = true, score }) {
    const text = preview(textOf(line), line, contains);
    const at = lineTime(line.time ?? line.arrived);
    const level = levelOf(line);
    return (_jsxs(Link, { to: addressOfLine(line.id), class: `log-row ${levelTone(level) ?? ""}`, "data-result": true, children: [_jsxs("span", { class: line.time === undefined ? "log-time arrived" : "log-time", title: line.time ?? `accepted ${line.arrived}`, children: [_jsx("span", { class: day ? "log-day" : "log-day same", children: at.day.slice(5) }), " ", at.clock] }), _jsx("span", { class: "log-level", children: level ?? "" }), _jsx("span", { class: "log-source", title: sourceOf(line), children: sourceOf(line) }), score && line.score !== undefined && _jsx("span", { class: "log-score", children: line.score.toFixed(2) }), _jsxs("span", { class: "log-text", children: [line.text_base64 !== undefined && _jsx("span", { class: "badge", children: "bytes" }), _jsx(Highlight, { text: text, spans: found(text, contains) })] })] }));
}
/** A time at the beginning of a line, as RFC 3339, ISO 8601 or RFC 3164 have it. */
const TIME = /^\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|[+-]\d\d:?\d\d))?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)\]?\s+/u;
const SHOWN = 600;
const BEFORE = 32;
/** Return what a row shows of a text: not the time that stands beside it, and what was looked for. */
export function preview(text, line, contains = "") {
    const start = line.time === undefined ? 0 : (TIME.exec(text)?.[0].length ?? 0);
    const at = contains === "" ? -1 : text.indexOf(contains);
    const from = at < 0 ? start : at < start ? 0 : at - start > 2 * BEFORE ? at - BEFORE : start;
    const part = text.slice(from, from + SHOWN);
    return `${from > start ? "… " : ""}${part}${from + SHOWN < text.length ? " …" : ""}`;
}
/** Return the level of a line: its label's, or of a record its attribute's. */
export function levelOf(line) {
    const level = line.labels?.["level"] ?? line.attributes?.["level"] ?? line.attributes?.["severity"];
    return typeof level === "string" ? level : undefined;
}
function sourceOf(line) {
    const { service, host, ...others } = line.labels ?? {};
    const named = [service, host].filter((value) => value !== undefined);
    if (named.length > 0)
        return named.join(" · ");
    return Object.entries(others)
        .filter(([name]) => name !== "level")
        .map(([, value]) => value)
        .slice(0, 2)
        .join(" · ");
}
/** Return where a text stands in another, as it is: the API looks for bytes. */
export function found(text, wanted) {
    if (wanted === "")
        return [];
    const spans = [];
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
        spans.push({ start: at, end: at + wanted.length, kind: "found" });
    }
    return spans;
}
