import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** The labels of the lines, with the values of those that are open: each can be wanted or not. */
import { useState } from "preact/hooks";
import { Button } from "../../components/Button.js";
import { Icon } from "../../components/Icon.js";
import { ErrorState, Loading } from "../../components/States.js";
import { count } from "../../format.js";
import { useRequest } from "../../request.js";
import { setTest, whereQuery } from "./state.js";
import { levelTone } from "./types.js";
const OPEN_AT_FIRST = 3;
const VALUES = 8;
/** Labels that are looked at first, then the others by name. */
const FIRST = ["level", "service", "host", "source"];
export function LabelsPanel({ state, bounds }) {
    const [narrowOpen, setNarrowOpen] = useState(false);
    const labels = useRequest({ method: "GET", path: "/v1/logs/labels", query: whereQuery(state, bounds) });
    const rank = (label) => (FIRST.includes(label.name) ? FIRST.indexOf(label.name) : FIRST.length);
    const shown = [...(labels.data?.labels ?? [])].sort((a, b) => rank(a) - rank(b));
    return (_jsxs("aside", { class: narrowOpen ? "logs-labels open" : "logs-labels", "aria-label": "Labels", children: [_jsxs("button", { type: "button", class: "logs-labels-toggle", "aria-expanded": narrowOpen, onClick: () => setNarrowOpen(!narrowOpen), children: [_jsx(Icon, { name: "filter", size: 15 }), " Labels", _jsx(Icon, { name: narrowOpen ? "up" : "down", size: 14 })] }), _jsxs("div", { class: "logs-labels-body", children: [_jsx("h2", { children: "Labels" }), labels.problem && _jsx(ErrorState, { problem: labels.problem, retry: labels.reload }), !labels.data && !labels.problem && _jsx(Loading, { lines: 5, label: "Reading labels" }), labels.data && shown.length === 0 && _jsx("p", { class: "note", children: "These lines have no labels." }), shown.map((label, index) => (_jsx(LabelGroup, { label: label, state: state, bounds: bounds, lines: labels.data?.lines ?? 0, openAtFirst: index < OPEN_AT_FIRST }, label.name)))] })] }));
}
function LabelGroup({ label, state, bounds, openAtFirst }) {
    const [open, setOpen] = useState(openAtFirst);
    const [all, setAll] = useState(false);
    // Of a label that is chosen the other values are shown too: so one can be changed for another.
    const others = { ...state, where: state.where.filter((test) => test.name !== label.name) };
    const values = useRequest(open ? { method: "GET", path: "/v1/logs/labels", query: { ...whereQuery(others, bounds), name: label.name, limit: all ? 200 : VALUES } } : null);
    const found = values.data?.labels[0];
    const most = Math.max(1, ...(found?.values.map((one) => one.lines) ?? []));
    return (_jsxs("section", { class: "label-group", children: [_jsx("h3", { children: _jsxs("button", { type: "button", "aria-expanded": open, onClick: () => setOpen(!open), children: [_jsx(Icon, { name: open ? "down" : "right", size: 13 }), label.name, _jsx("span", { class: "note", children: count(found?.distinct ?? label.distinct) })] }) }), open && values.problem && _jsx("p", { class: "hint bad", children: values.problem.detail }), open && !found && values.loading && _jsx(Loading, { lines: 2, label: `Reading values of ${label.name}` }), open && found && (_jsx("ul", { children: found.values.map((one) => (_jsx(LabelValue, { name: label.name, value: one.value, lines: one.lines, share: one.lines / most, state: state }, one.value))) })), open && found && found.distinct > found.values.length && (_jsx(Button, { kind: "quiet", small: true, onClick: () => setAll(true), disabled: all, children: all ? `The first ${found.values.length} of ${count(found.distinct)}` : `All ${count(found.distinct)} values` }))] }));
}
function LabelValue({ name, value, lines, share, state }) {
    const test = state.where.find((one) => one.name === name && one.value === value);
    const wanted = test !== undefined && !test.not;
    const unwanted = test?.not === true;
    const tone = name === "level" ? levelTone(value) : undefined;
    return (_jsxs("li", { class: `label-value ${wanted ? "wanted" : ""} ${unwanted ? "unwanted" : ""}`, children: [_jsxs("button", { type: "button", class: "label-want", "aria-pressed": wanted, title: wanted ? `Lines with any ${name}` : `Only lines with ${name}=${value}`, onClick: () => setTest(state, name, value, wanted ? null : false), children: [_jsx("span", { class: `label-bar ${tone ?? "series-6"}`, style: { width: `${Math.max(2, share * 100)}%` } }), _jsx("span", { class: "label-text", children: value === "" ? "(empty)" : value }), _jsx("span", { class: "label-count", children: count(lines) })] }), _jsx("button", { type: "button", class: "label-not", "aria-pressed": unwanted, "aria-label": `Without ${name}=${value}`, title: unwanted ? `Lines with ${name}=${value} again` : `Without ${name}=${value}`, onClick: () => setTest(state, name, value, unwanted ? null : true), children: _jsx(Icon, { name: "minus", size: 13 }) })] }));
}
