import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Which lines are meant: collection, text, times, and what was chosen of labels and statements. */
import { useEffect, useState } from "preact/hooks";
import { remember } from "../../collections.js";
import { Button } from "../../components/Button.js";
import { Dialog } from "../../components/Dialog.js";
import { Segmented, Select, TextField } from "../../components/Field.js";
import { Icon } from "../../components/Icon.js";
import { momentText } from "../../components/ticks.js";
import { RANGES, change, setTest, testText } from "./state.js";
const CUSTOM = "custom";
export function Toolbar({ state, names, statement }) {
    const [text, setText] = useState(state.text);
    useEffect(() => setText(state.text), [state.text]);
    const known = names.includes(state.collection) ? names : [...names, state.collection];
    return (_jsxs("div", { class: "logs-toolbar", children: [_jsxs("form", { class: "logs-form", role: "search", onSubmit: (event) => {
                    event.preventDefault();
                    change({ q: text });
                }, children: [_jsx(Select, { label: "Collection", value: state.collection, choices: known.map((name) => ({ value: name, label: name })), onChange: (collection) => {
                            remember(collection);
                            change({ collection, statement: null, where: null });
                        } }), _jsxs("div", { class: "logs-find", children: [_jsx(TextField, { label: state.meaning ? "Lines about" : "Lines that contain", value: text, type: "search", name: "q", autocomplete: "off", spellcheck: false, placeholder: state.meaning ? "a payment was refused" : "these bytes, such as timeout", "data-page-field": true, onInput: setText }), _jsx(Segmented, { label: "How lines are found", value: state.meaning ? "meaning" : "text", choices: [
                                    { value: "text", label: "Text", title: "Lines that have these bytes in them" },
                                    { value: "meaning", label: "Meaning", title: "Lines of the nearest statements first", disabled: state.live },
                                ], onChange: (mode) => change({ q: text, "by-meaning": mode === "meaning" }) }), _jsx(Button, { type: "submit", kind: "primary", children: "Find" })] }), _jsx(TimeRange, { state: state })] }), _jsx(Chosen, { state: state, statement: statement })] }));
}
function TimeRange({ state }) {
    const [open, setOpen] = useState(false);
    const own = state.from !== null || state.to !== null;
    const value = own ? CUSTOM : (RANGES.find((one) => one.lastS === state.lastS)?.value ?? "");
    return (_jsxs(_Fragment, { children: [_jsx(Select, { label: "Times", value: value, disabled: state.live, choices: [
                    ...RANGES.map((one) => ({ value: one.value, label: one.label })),
                    { value: CUSTOM, label: own ? rangeText(state) : "From … to …" },
                ], onChange: (chosen) => {
                    if (chosen === CUSTOM)
                        setOpen(true);
                    else
                        change({ range: chosen, from: null, to: null });
                } }), _jsx(RangeDialog, { state: state, open: open, onClose: () => setOpen(false) })] }));
}
function RangeDialog({ state, open, onClose }) {
    const [from, setFrom] = useState("");
    const [to, setTo] = useState("");
    useEffect(() => {
        setFrom(fieldText(state.from));
        setTo(fieldText(state.to));
    }, [open]);
    const bad = from !== "" && to !== "" && new Date(from) >= new Date(to);
    return (_jsx(Dialog, { title: "Lines from \u2026 to \u2026", open: open, onClose: onClose, children: _jsxs("form", { class: "logs-range", onSubmit: (event) => {
                event.preventDefault();
                if (bad)
                    return;
                onClose();
                change({ range: null, from: secondsOf(from), to: secondsOf(to) });
            }, children: [_jsx(TextField, { label: "From", type: "datetime-local", step: "1", value: from, onInput: setFrom, hint: "Your own time zone; empty for the first line" }), _jsx(TextField, { label: "To", type: "datetime-local", step: "1", value: to, onInput: setTo, error: bad ? "Expected a later time than the first" : undefined }), _jsx(Button, { type: "submit", kind: "primary", disabled: bad, children: "Show these times" })] }) }));
}
/** What was chosen elsewhere on the page, each with a way to drop it. */
function Chosen({ state, statement }) {
    const ranged = state.from !== null || state.to !== null;
    if (!ranged && state.where.length === 0 && state.statement === null)
        return null;
    return (_jsxs("ul", { class: "logs-chips", "aria-label": "What is chosen", children: [ranged && (_jsx(Chip, { text: rangeText(state), label: "Show all times", onDrop: () => change({ from: null, to: null }) })), state.where.map((test) => (_jsx(Chip, { tone: test.not ? "not" : undefined, text: `${test.name} ${test.not ? "≠" : "="} ${test.value}`, label: `Drop ${testText(test)}`, onDrop: () => setTest(state, test.name, test.value, null) }, testText(test)))), state.statement !== null && (_jsx(Chip, { text: statement === undefined ? `statement ${state.statement}` : statement.replaceAll("<*>", "…"), label: "Lines of all statements", onDrop: () => change({ statement: null }) })), _jsx("li", { children: _jsx(Button, { kind: "quiet", small: true, onClick: () => change({ from: null, to: null, where: null, statement: null }), children: "Clear" }) })] }));
}
function Chip({ text, label, tone, onDrop }) {
    return (_jsxs("li", { class: tone === "not" ? "logs-chip not" : "logs-chip", children: [_jsx("span", { children: text }), _jsx("button", { type: "button", "aria-label": label, title: label, onClick: onDrop, children: _jsx(Icon, { name: "close", size: 13 }) })] }));
}
function rangeText(state) {
    const { from, to } = state;
    const step = from !== null && to !== null && to - from < 10 ? 0.001 : 1;
    if (from === null)
        return `until ${momentText(to ?? 0, step)}`;
    if (to === null)
        return `since ${momentText(from, step)}`;
    return `${momentText(from, step)} – ${momentText(to, step, from)}`;
}
function fieldText(at) {
    if (at === null)
        return "";
    const local = new Date(at * 1000 - new Date(at * 1000).getTimezoneOffset() * 60_000);
    return local.toISOString().slice(0, 19);
}
function secondsOf(text) {
    return text === "" ? null : new Date(text).getTime() / 1000;
}
