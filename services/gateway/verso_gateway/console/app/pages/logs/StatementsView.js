import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** What lines have in common: statements with how often and when; those that are new. */
import { Select } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { Sparkline } from "../../components/Sparkline.js";
import { Empty, ErrorState, Loading, Notice } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { ago, count, duration, plural, time } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf, place } from "../../router.js";
import { statementsRequest } from "./requests.js";
import { change } from "./state.js";
export function StatementsView({ state, bounds, nowS, intervalS }) {
    const found = useRequest(intervalS === undefined ? null : statementsRequest({ ...state, statement: null }, bounds, nowS, intervalS));
    const { data, problem } = found;
    const fresh = state.fresh !== null;
    return (_jsxs(Card, { flush: true, title: fresh ? "New statements" : "Statements", note: data && `${plural(data.distinct, "statement")} of ${plural(data.lines, "line")}`, actions: _jsx(FreshChoice, { state: state, bounds: bounds }), children: [state.text !== "" && (_jsx(Notice, { children: "The text is not looked for here: statements are those of all lines with these labels and times." })), problem && _jsx(ErrorState, { problem: problem, retry: found.reload }), !data && !problem && (_jsx("div", { class: "logs-wait", children: _jsx(Loading, { lines: 8, label: "Finding statements" }) })), data && data.statements.length === 0 && (_jsx(Empty, { icon: fresh ? "check" : "logs", title: fresh ? "Nothing new" : "No statements", children: _jsx("p", { children: fresh ? "Every statement of these lines was seen before that time." : "No stored line passes what is chosen." }) })), data && data.statements.length > 0 && (_jsx("div", { class: found.loading ? "stale" : undefined, children: _jsx(Table, { caption: fresh ? "New statements" : "Statements", columns: columnsOf(data), rows: data.statements, rowKey: (row) => row.id, to: addressOfStatement }) })), data && data.distinct > data.statements.length && (_jsxs("p", { class: "note logs-more", children: ["The ", count(data.statements.length), " most frequent ones. Choose labels or times to see others."] }))] }));
}
function FreshChoice({ state, bounds }) {
    const values = { "1h": "New in the last hour", "24h": "New in the last 24 hours", "7d": "New in the last 7 days" };
    const of = { 3600: "1h", 86_400: "24h", 604_800: "7d" };
    const value = state.fresh === null ? "" : state.fresh === "range" ? "range" : (of[state.fresh] ?? "");
    return (_jsx(Select, { label: "Which statements", bare: true, value: value, choices: [
            { value: "", label: "All statements" },
            { value: "range", label: bounds.from === null ? "New since … (brush a range first)" : `New since ${time(bounds.from)}`, disabled: bounds.from === null },
            ...Object.entries(values).map(([one, label]) => ({ value: one, label })),
        ], onChange: (chosen) => change({ new: chosen }) }));
}
function columnsOf(data) {
    const every = data.interval_s ? `lines in ${duration(data.interval_s)}` : "lines";
    return [
        {
            title: "Statement",
            cell: (row) => (_jsxs(_Fragment, { children: [_jsx(Template, { text: row.statement }), _jsxs("span", { class: "note only-narrow", children: ["last ", ago(row.last_seen)] })] })),
        },
        { title: "Lines", numeric: true, cell: (row) => count(row.count) },
        {
            title: "Over time",
            minor: true,
            width: "136px",
            cell: (row) => _jsx(Sparkline, { label: `${every}: ${count(row.count)} in all, most ${count(Math.max(0, ...(row.counts ?? [])))}`, values: row.counts ?? [] }),
        },
        { title: "First seen", minor: true, width: "150px", cell: (row) => _jsx(Seen, { at: row.first_seen }) },
        { title: "Last seen", minor: true, width: "150px", cell: (row) => _jsx(Seen, { at: row.last_seen }) },
    ];
}
function Seen({ at }) {
    return (_jsxs("span", { class: "seen", title: time(at), children: [time(at), _jsx("span", { class: "note", children: ago(at) })] }));
}
/** The words of a statement; where lines differ stands a gap. */
export function Template({ text }) {
    return (_jsx("code", { class: "template", children: text.split(/(<\*>)/u).map((part, index) => (part === "<*>" ? _jsx("span", { class: "gap", role: "img", "aria-label": "anything" }, index) : part)) }));
}
/** Return the address of the lines of a statement, with all else that is chosen. */
function addressOfStatement(row) {
    const query = {};
    for (const [name, value] of place.value.query)
        (query[name] ??= []).push(value);
    delete query["view"];
    delete query["line"];
    return addressOf("logs", { ...query, statement: row.id });
}
