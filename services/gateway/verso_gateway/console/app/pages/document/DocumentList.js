import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** The documents of a collection, the newest or the smallest id first, a page at a time. */
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api.js";
import { remember } from "../../collections.js";
import { Button } from "../../components/Button.js";
import { CodeSamples, keywords } from "../../components/CodeSamples.js";
import { Segmented, Select, TextField } from "../../components/Field.js";
import { Badge, Card, Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { toastProblem } from "../../components/Toast.js";
import { conditionText, conditionsOf, filterOf, scalarsOf } from "../../filters.js";
import { bytes, count, time } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf, navigate, place, setQuery } from "../../router.js";
const PAGE = 50;
const COLUMNS = [
    { title: "Document", cell: (row) => row.id },
    { title: "Time", cell: (row) => _jsx("time", { class: "nowrap", children: time(row.time) }), minor: true },
    {
        title: "Metadata",
        minor: true,
        cell: (row) => (_jsx("span", { class: "list-metadata", children: scalarsOf(row.metadata ?? {})
                .slice(0, 3)
                .map((one) => `${one.field} ${one.value}`)
                .join(" · ") })),
    },
    { title: "Parts", numeric: true, minor: true, cell: (row) => (row.chunks == null ? "–" : count(row.chunks)) },
    { title: "Text", numeric: true, cell: (row) => bytes(row.bytes) },
    {
        title: "State",
        width: "110px",
        cell: (row) => (row.verified ? _jsx(Badge, { tone: "good", children: "verified" }) : _jsx(Badge, { tone: "warning", children: "not yet verified" })),
    },
];
export function DocumentList({ collection, found }) {
    const query = place.value.query;
    const order = query.get("order") === "id" ? "id" : "time";
    const conditions = conditionsOf(query.getAll("where"));
    const filter = filterOf(conditions);
    const body = {
        order,
        ...(order === "time" ? { descending: true } : {}),
        limit: PAGE,
        ...(filter === undefined ? {} : { filter }),
    };
    const request = { method: "POST", path: `/v1/collections/${collection.name}/documents/query`, body };
    const first = useRequest(collection.kind === "logs" ? null : request);
    const [more, setMore] = useState([]);
    const [busy, setBusy] = useState(false);
    const [id, setId] = useState("");
    useEffect(() => setMore([]), [first.data]);
    const rows = [first.data, ...more].flatMap((page) => page?.documents ?? []);
    const cursor = (more.at(-1) ?? first.data)?.next_cursor;
    const next = async () => {
        setBusy(true);
        try {
            const page = await call({ ...request, body: { ...body, cursor } });
            setMore((before) => [...before, page]);
        }
        catch (error) {
            toastProblem(error);
        }
        setBusy(false);
    };
    const sample = {
        title: "List documents",
        request,
        python: `page = client.query(${JSON.stringify(collection.name)}${keywords({ ...body })})\nfor document in page.documents:\n    print(document.id, document.bytes)`,
    };
    return (_jsxs(Page, { title: "Documents", wide: true, about: "What a collection holds. Texts are dropped once they are verified, and rebuilt byte for byte when they are read.", actions: _jsx(CodeSamples, { samples: collection.kind === "logs" ? [] : [sample] }), children: [_jsxs("div", { class: "list-controls", children: [_jsx(Select, { label: "Collection", value: collection.name, choices: found.map((one) => ({ value: one.name, label: one.name })), onChange: (name) => {
                            remember(name);
                            setQuery({ collection: name, where: [] });
                        } }), _jsx(Segmented, { label: "Order", value: order, choices: [
                            { value: "time", label: "Newest first" },
                            { value: "id", label: "By id" },
                        ], onChange: (value) => setQuery({ order: value === "id" ? value : null }) }), _jsxs("form", { class: "list-open", onSubmit: (event) => {
                            event.preventDefault();
                            if (id.trim() !== "")
                                navigate(addressOf("documents", { collection: collection.name, id: id.trim() }));
                        }, children: [_jsx(TextField, { label: "Open by id", bare: true, placeholder: "Open by id", value: id, onInput: setId }), _jsx(Button, { type: "submit", disabled: id.trim() === "", children: "Open" })] })] }), conditions.length > 0 && (_jsx("ul", { class: "chips", "aria-label": "Conditions that hold", children: conditions.map((condition) => (_jsx("li", { children: _jsxs("button", { type: "button", class: "chip on", onClick: () => setQuery({ where: conditions.filter((one) => one !== condition).map(conditionText) }), children: [_jsx("span", { class: "chip-field", children: condition.field }), " ", String(condition.value), " \u00D7"] }) }, conditionText(condition)))) })), collection.kind === "logs" ? (_jsxs(Empty, { icon: "logs", title: `${collection.name} holds log lines`, children: [_jsx("p", { children: "Lines are kept together, with one vector a statement." }), _jsx(Button, { to: addressOf("logs", { collection: collection.name }), children: "Read its lines" })] })) : first.problem ? (_jsx(ErrorState, { problem: first.problem, retry: first.reload })) : first.data === undefined ? (_jsx(Loading, { lines: 8 })) : rows.length === 0 ? (_jsx(Empty, { icon: "document", title: filter === undefined ? `${collection.name} is empty` : "No document passes the conditions", children: filter === undefined && (_jsxs("p", { children: ["Send documents: ", _jsxs("code", { children: ["verso ingest FILE --collection ", collection.name] })] })) })) : (_jsxs(Card, { flush: true, children: [_jsx(Table, { caption: `Documents of ${collection.name}`, columns: COLUMNS, rows: rows, rowKey: (row) => row.id, to: (row) => addressOf("documents", { collection: collection.name, id: row.id }) }), cursor != null && (_jsx("div", { class: "list-more", children: _jsxs(Button, { busy: busy, onClick: () => void next(), children: ["Show ", PAGE, " more"] }) }))] }))] }));
}
