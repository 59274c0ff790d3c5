import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** One line in full: its exact text, labels and attributes, and the lines around it. */
import { useEffect, useState } from "preact/hooks";
import { problemFrom, send } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples, python } from "../../components/CodeSamples.js";
import { CopyButton } from "../../components/CopyButton.js";
import { Dialog } from "../../components/Dialog.js";
import { Highlight } from "../../components/Highlight.js";
import { Badge, Facts } from "../../components/Layout.js";
import { ErrorState, Loading, Notice } from "../../components/States.js";
import { lineTime } from "../../components/ticks.js";
import { useRequest } from "../../request.js";
import { Link, addressOf, setQuery } from "../../router.js";
import { fromBase64, hexDump } from "../../text.js";
import { found, levelOf, preview } from "./LineRow.js";
import { textOf } from "./lines.js";
import { addressOfLine, change, testText } from "./state.js";
import { levelTone } from "./types.js";
const AROUND = [5, 20, 100];
export function LineDialog({ state }) {
    const close = () => setQuery({ line: null }, { replace: true });
    return (_jsx(Dialog, { title: state.line === null ? "Line" : `Line ${state.line}`, open: state.line !== null, onClose: close, wide: true, children: state.line !== null && _jsx(LineView, { state: state, id: state.line }, state.line) }));
}
function LineView({ state, id }) {
    const [step, setStep] = useState(0);
    const around = AROUND[step] ?? 5;
    const body = { collection: state.collection, filter: { field: "id", eq: id }, before: around, after: around, limit: 1 };
    const { line, problem } = useLine(body);
    if (problem)
        return _jsx(ErrorState, { problem: problem });
    if (line === undefined)
        return _jsx(Loading, { lines: 6, label: "Reading the line" });
    if (line === null) {
        return _jsx(Notice, { tone: "warning", children: "This line is not stored yet, or was deleted. A line of the live tail is stored some seconds after its acceptance." });
    }
    const text = textOf(line);
    const at = lineTime(line.time);
    const level = levelOf(line);
    return (_jsxs(_Fragment, { children: [_jsxs("div", { class: "line-head", children: [_jsxs("b", { children: [at.day, " ", at.clock] }), level && _jsx("span", { class: `level-word ${levelTone(level) ?? ""}`, children: level }), line.time_from && _jsxs(Badge, { title: "The sender gave no time", children: ["time: ", line.time_from] }), _jsxs("span", { class: "line-actions", children: [_jsx(CopyButton, { text: text, label: "Copy the line" }), _jsx(CodeSamples, { samples: [
                                    {
                                        title: "Read the line and those around it",
                                        request: { method: "POST", path: "/v1/logs/query", body },
                                        python: `from verso_client import LinesRequest\n\nfor data in client.lines(LinesRequest.model_validate(${python(body)})):\n    print(data.decode(), end="")`,
                                    },
                                ] })] })] }), _jsx("pre", { class: "line-text", children: line.text_base64 === undefined ? _jsx(Highlight, { text: text, spans: found(text, state.meaning ? "" : state.text) }) : hexDump(fromBase64(line.text_base64)) }), _jsx("div", { class: "line-facts", children: _jsx(Facts, { facts: [
                        ["time", _jsx("code", { children: line.time ?? "–" })],
                        ["statement", _jsx(LineStatement, { state: state, id: id })],
                        ...Object.entries(line.labels ?? {}).map(([name, value]) => [name, _jsx(LabelFact, { state: state, name: name, value: value })]),
                        ...Object.entries(line.attributes ?? {}).map(([name, value]) => [name, _jsx("code", { children: typeof value === "string" ? value : JSON.stringify(value) })]),
                    ] }) }), _jsxs("section", { class: "line-around", "aria-label": "Lines around it", children: [_jsxs("header", { children: [_jsx("h3", { children: "Lines around it" }), _jsx("span", { class: "note", children: "of the same source, whatever their level" }), step + 1 < AROUND.length && (_jsxs(Button, { small: true, kind: "quiet", icon: "plus", onClick: () => setStep(step + 1), children: [AROUND[step + 1], " before and after"] }))] }), _jsxs("ol", { children: [(line.before ?? []).map((one) => (_jsx(Around, { line: one }, one.id))), _jsx(Around, { line: line, here: true }), (line.after ?? []).map((one) => (_jsx(Around, { line: one }, one.id)))] })] })] }));
}
/** The statement that wrote the line, which leads to all of its lines. */
function LineStatement({ state, id }) {
    const body = { collection: state.collection, id, limit: 1, with_text: false };
    const { data, problem } = useRequest({ method: "POST", path: "/v1/search", body });
    const hit = data?.hits[0];
    if (problem || (data !== undefined && hit?.statement_id == null))
        return _jsx(_Fragment, { children: "\u2013" });
    if (hit === undefined)
        return _jsx(_Fragment, { children: "\u2026" });
    const to = addressOf("logs", { collection: state.collection, statement: hit.statement_id });
    return (_jsx(Link, { to: to, title: "All lines of this statement", children: _jsx("code", { children: hit.statement }) }));
}
function Around({ line, here }) {
    const level = levelOf(line);
    const inner = (_jsxs(_Fragment, { children: [_jsx("span", { class: "log-time", children: lineTime(line.time).clock }), _jsx("span", { class: "around-text", children: here ? textOf(line) : preview(textOf(line), line) })] }));
    return (_jsx("li", { class: `${here ? "here" : ""} ${levelTone(level) ?? ""}`, "aria-current": here ? "true" : undefined, children: here ? _jsx("div", { class: "around-row", children: inner }) : _jsx(Link, { to: addressOfLine(line.id), class: "around-row", children: inner }) }));
}
function LabelFact({ state, name, value }) {
    const chosen = state.where.some((test) => test.name === name && test.value === value && !test.not);
    return (_jsxs("span", { class: "label-fact", children: [_jsx("code", { children: value }), !chosen && (_jsx(Button, { kind: "quiet", small: true, icon: "filter", label: `Only lines with ${name}=${value}`, onClick: () => change({ where: [...state.where.map(testText), `${name}=${value}`] }) }))] }));
}
/** Read one line; null where there is none. */
function useLine(body) {
    const [line, setLine] = useState(undefined);
    const [problem, setProblem] = useState(undefined);
    const key = JSON.stringify(body);
    useEffect(() => {
        const control = new AbortController();
        send({ method: "POST", path: "/v1/logs/query", body: JSON.parse(key) }, { signal: control.signal })
            .then(async (response) => {
            const rows = (await response.text()).split("\n").filter((text) => text !== "");
            setLine(rows.map((text) => JSON.parse(text)).find((row) => row.id !== undefined) ?? null);
        })
            .catch((error) => {
            if (!control.signal.aborted)
                setProblem(problemFrom(error));
        });
        return () => control.abort();
    }, [key]);
    return { line, problem };
}
