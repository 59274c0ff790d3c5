import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
import { Icon } from "../../components/Icon.js";
import { Highlight } from "../../components/Highlight.js";
import { Badge } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { ErrorState, Loading } from "../../components/States.js";
import { milliseconds, percent, plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { Link, addressOf } from "../../router.js";
import { spanOf } from "../../text.js";
export function AnswerCard({ answer, collection }) {
    const { data, problem, loading, reload, tookMs } = answer;
    if (problem) {
        return (_jsx(Frame, { title: "Answer", children: _jsx(ErrorState, { problem: problem, retry: reload }) }));
    }
    if (data === undefined || loading) {
        return (_jsx(Frame, { title: "Answer", note: "reading the nearest passages", children: _jsx(Loading, { lines: 2, label: "Reading the nearest passages" }) }));
    }
    return _jsx(Read, { data: data, collection: collection, tookMs: tookMs });
}
function Read({ data, collection, tookMs }) {
    const ids = data.answers.map((part) => part.id).filter((id) => typeof id === "string");
    const sources = useRequest(ids.length === 0 || collection.kind === "logs"
        ? null
        : { method: "POST", path: "/v1/reconstruct", body: { collection: collection.name, ids: [...new Set(ids)] } });
    const textOf = (id) => sources.data?.results.find((one) => (one.chunk == null ? one.id : `${one.id}#${one.chunk}`) === id)?.text ?? undefined;
    const best = data.answers[0];
    const note = [plural(data.contexts, "passage") + " read", tookMs === undefined ? "" : milliseconds(tookMs)].filter(Boolean).join(" · ");
    if (!data.answered || best === undefined) {
        return (_jsxs(Frame, { title: "No answer", note: note, tone: "none", children: [_jsx("p", { class: "answer-none", children: data.contexts === 0
                        ? "Nothing was found to read."
                        : "None of the nearest passages answers this question. They are listed below, the nearest first." }), best !== undefined && (_jsxs("details", { class: "answer-guess", children: [_jsx("summary", { children: "The closest reading, which was not good enough" }), _jsx(Quote, { part: best, text: textOf(best.id), collection: collection, threshold: data.null_threshold })] }))] }));
    }
    const others = data.answers.slice(1).filter((part) => part.score - part.null_score > data.null_threshold && part.text !== best.text);
    return (_jsxs(Frame, { title: "Answer", note: note, tone: "found", children: [_jsx("p", { class: "answer-text", lang: "", children: best.text ?? "(bytes that are not text)" }), _jsx(Quote, { part: best, text: textOf(best.id), collection: collection, threshold: data.null_threshold }), others.length > 0 && (_jsxs("details", { class: "answer-others", children: [_jsx("summary", { children: plural(others.length, "further answer") }), others.map((part, index) => (_jsx(Quote, { part: part, text: textOf(part.id), collection: collection, threshold: data.null_threshold }, index)))] }))] }));
}
function Frame({ title, note, tone, children }) {
    return (_jsxs("section", { class: `card answer-card ${tone ?? ""}`, "aria-live": "polite", "aria-label": title, children: [_jsxs("header", { class: "answer-head", children: [_jsx("h2", { children: title }), note && _jsx("span", { class: "note", children: note })] }), children] }));
}
/** Answers beyond this margin are as sure as the head gets. */
const CLEAR = 16;
function Quote({ part, text, collection, threshold, }) {
    const margin = part.score - part.null_score;
    return (_jsxs("figure", { class: "quote", children: [text !== undefined && part.start != null && part.end != null && (_jsx("blockquote", { class: "exact", children: _jsx(Passage, { text: text, part: part }) })), _jsxs("figcaption", { children: [part.id != null && (_jsxs(Link, { class: "source", "data-result": true, to: sourceOf(part, collection), children: [_jsx(Icon, { name: collection.kind === "logs" ? "logs" : "document", size: 15 }), part.document ?? part.id] })), part.page != null && _jsxs("span", { class: "note", children: ["page ", part.page] }), _jsxs(Badge, { tone: "good", title: "Every byte of the source was rebuilt from its vector and patch, and checked", children: [_jsx(Icon, { name: "exact", size: 14 }), " exact text"] }), part.confidence != null ? (_jsxs("span", { class: "certainty", title: "Calibrated: of answers with this confidence, this share is right", children: [_jsx(Meter, { label: "Confidence", value: part.confidence, text: percent(part.confidence) }), percent(part.confidence), " confidence"] })) : (_jsxs("span", { class: "certainty", title: "Score of the answer above that of \u201Cthere is no answer here\u201D; the tick is what it must pass", children: [_jsx(Meter, { label: "Margin over no answer", value: margin + CLEAR, max: 2 * CLEAR, mark: threshold + CLEAR, text: margin.toFixed(1) }), margin >= 0 ? "+" : "−", Math.abs(margin).toFixed(1), " over \u201Cno answer\u201D (", threshold.toFixed(1), " needed)"] }))] })] }));
}
const BEFORE = 220;
const AFTER = 320;
/** The record's text around the answer, cut at white space; the rest is one click away. */
function Passage({ text, part }) {
    const spans = [spanOf(text, part.start ?? 0, part.end ?? 0, "answer")];
    if (part.evidence.start != null && part.evidence.end != null) {
        spans.push(spanOf(text, part.evidence.start, part.evidence.end, "evidence"));
    }
    const first = Math.min(...spans.map((span) => span.start));
    const last = Math.max(...spans.map((span) => span.end));
    const from = first <= BEFORE ? 0 : nextSpace(text, first - BEFORE);
    const to = text.length - last <= AFTER ? text.length : nextSpace(text, last + AFTER);
    const moved = spans.map((span) => ({ ...span, start: span.start - from, end: span.end - from }));
    return (_jsxs(_Fragment, { children: [from > 0 && _jsx("span", { class: "cut", children: "\u2026 " }), _jsx(Highlight, { text: text.slice(from, to), spans: moved }), to < text.length && _jsx("span", { class: "cut", children: " \u2026" })] }));
}
function nextSpace(text, from) {
    const at = text.slice(from).search(/\s/);
    return at === -1 || at > 80 ? from : from + at;
}
function sourceOf(part, collection) {
    if (collection.kind === "logs")
        return addressOf("logs", { collection: collection.name, line: part.id });
    return addressOf("documents", {
        collection: collection.name,
        id: part.document,
        chunk: part.chunk,
        start: part.start,
        end: part.end,
    });
}
