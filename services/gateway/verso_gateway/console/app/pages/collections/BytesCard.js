import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** The bytes of a collection: three views, what is kept where, and which codec won. */
import { Badge, Card } from "../../components/Layout.js";
import { Parts } from "../../components/Meter.js";
import { Empty } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { bytes, count, percent } from "../../format.js";
import { verdict, viewsOf } from "./views.js";
export function BytesCard({ found }) {
    const views = viewsOf(found);
    return (_jsx(Card, { title: "What it takes", note: "bytes of all documents", children: views.length === 0 ? (_jsx(Empty, { icon: "collections", title: "Nothing is stored yet", children: _jsx("p", { children: "The three comparisons appear with the first document." }) })) : (_jsx("div", { class: "views", children: views.map((view) => (_jsx(ViewBars, { view: view }, view.id))) })) }));
}
function ViewBars({ view }) {
    const found = verdict(view);
    const most = Math.max(view.ours, view.theirs);
    return (_jsxs("section", { class: found.more ? "view takes-more" : "view", children: [_jsxs("header", { children: [_jsx("h3", { children: view.title }), _jsxs("p", { class: "view-verdict", children: ["Verso ", found.text] })] }), _jsxs("dl", { class: "view-bars", children: [_jsx(Bar, { name: "Verso", what: view.oursLabel, size: view.ours, most: most, ours: true, more: found.more }), _jsx(Bar, { name: "Against", what: view.theirsLabel, size: view.theirs, most: most })] }), _jsx("p", { class: "note", children: view.about })] }));
}
function Bar(props) {
    const { name, what, size, most, ours, more } = props;
    return (_jsxs("div", { class: "bar-row", children: [_jsxs("dt", { children: [_jsx("b", { children: name }), " ", _jsx("span", { children: what })] }), _jsxs("dd", { children: [_jsx("span", { class: "bar-track", children: _jsx("span", { class: ["bar-fill", ours ? "ours" : "", more ? "takes-more" : ""].join(" "), style: { width: `${Math.max(0.6, (size / most) * 100)}%` } }) }), _jsx("span", { class: "bar-size", children: bytes(size) })] })] }));
}
export function CodecsCard({ found }) {
    const rows = Object.entries(found.codecs ?? {})
        .filter(([, share]) => share.records > 0)
        .sort(([, a], [, b]) => b.records - a.records);
    if (rows.length === 0)
        return null;
    const records = rows.reduce((sum, [, share]) => sum + share.records, 0);
    const parts = rows.map(([name, share], index) => ({
        label: name,
        value: share.records,
        text: percent(share.records / records),
        colour: colourOf(index),
    }));
    return (_jsx(Card, { title: "Which codec won", note: "the smallest payload that decodes to the chunk", children: _jsxs("div", { class: "stack", children: [_jsx(Parts, { label: "Records by codec", parts: parts }), _jsx(Table, { caption: "Records and bytes by codec", rows: rows, rowKey: ([name]) => name, columns: [
                        { title: "Codec", cell: ([name]) => _jsx("code", { children: name }) },
                        { title: "Records", numeric: true, cell: ([, share]) => count(share.records) },
                        { title: "Patches", numeric: true, cell: ([, share]) => bytes(share.bytes) },
                        { title: "A record", numeric: true, cell: ([, share]) => bytes(share.bytes / share.records) },
                    ] })] }) }));
}
const PLACES = [
    ["bytes_entries", "patches", "memory"],
    ["bytes_lines", "lines", "memory"],
    ["bytes_texts", "texts kept too", "memory"],
    ["bytes_fitted", "fitted tables", "memory"],
    ["bytes_vectors", "vectors", "disk"],
    ["bytes_index", "index", "disk"],
    ["bytes_words", "words", "disk"],
    ["bytes_points", "ids, metadata", "disk"],
];
export function KeptCard({ found }) {
    const kept = found.kept;
    if (!kept || kept.bytes_memory + (kept.bytes_disk ?? 0) === 0)
        return null;
    const all = kept.bytes_memory + (kept.bytes_disk ?? 0);
    return (_jsx(Card, { title: "Where it lies", note: `${bytes(all)} in all`, children: _jsxs("div", { class: "stack", children: [_jsx(Placed, { kept: kept, where: "memory", title: "Memory of the ledger", total: kept.bytes_memory }), kept.bytes_disk ? (_jsx(Placed, { kept: kept, where: "disk", title: "Disk of the vector store", total: kept.bytes_disk })) : (_jsx("p", { class: "note", children: "The vector store does not say what it has on disk." })), _jsxs("p", { class: "note", children: ["Kept once for all collections: ", bytes(kept.bytes_tables), " of codec tables.", (found.generations ?? []).length > 0 && (_jsxs(_Fragment, { children: [" ", _jsxs(Badge, { tone: "accent", children: ["fitted ", count(found.fits ?? 0), " times"] })] }))] })] }) }));
}
function Placed(props) {
    const own = PLACES.filter(([, , where]) => where === props.where);
    const parts = own.map(([name, label], index) => ({
        label,
        value: props.kept[name] ?? 0,
        text: bytes(props.kept[name] ?? 0),
        colour: colourOf(index),
    }));
    return (_jsxs("div", { children: [_jsxs("p", { class: "placed", children: [_jsx("span", { children: props.title }), " ", _jsx("b", { children: bytes(props.total) })] }), _jsx(Parts, { label: props.title, parts: parts })] }));
}
function colourOf(index) {
    return (Math.min(index, 5) + 1);
}
