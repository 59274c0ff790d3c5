import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** All collections with what they hold, and how a new one is made. */
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Badge, Card, Page } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { bytes, count, duration, percent } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf, place, setQuery } from "../../router.js";
import { may } from "../../session.js";
import { CreateDialog } from "./CreateDialog.js";
import { described } from "./requests.js";
const ALL = { method: "GET", path: "/v1/collections" };
const DAY_S = 86_400;
export function CollectionList() {
    const listed = useRequest(ALL);
    const rows = listed.data?.collections ?? [];
    const figures = useFigures(rows);
    const creating = place.value.query.has("new");
    return (_jsxs(Page, { title: "Collections", about: "Each keeps a vector and a small patch for every text, and returns every byte.", actions: _jsxs(_Fragment, { children: [_jsx(CodeSamples, { samples: [{ title: "List the collections", request: ALL, python: "for one in client.collections():\n    print(one.name)" }] }), may("ingest") && (_jsx(Button, { kind: "primary", icon: "plus", onClick: () => setQuery({ new: true }), children: "New collection" }))] }), children: [_jsx(Card, { flush: true, children: content() }), _jsx(CreateDialog, { open: creating, onClose: () => setQuery({ new: null }, { replace: true }) })] }));
    function content() {
        if (listed.problem && !listed.data)
            return _jsx(ErrorState, { problem: listed.problem, retry: listed.reload });
        if (!listed.data)
            return _jsx("div", { class: "card-body", children: _jsx(Loading, { lines: 5 }) });
        if (rows.length === 0) {
            return (_jsx(Empty, { icon: "collections", title: "There is no collection yet", children: _jsxs("p", { children: ["The first worker makes the collection ", _jsx("code", { children: "default" }), "."] }) }));
        }
        return (_jsx(Table, { caption: "Collections", rows: rows, rowKey: (row) => row.name, to: (row) => addressOf(`collections/${row.name}`), columns: [
                { title: "Name", cell: (row) => row.name },
                {
                    title: "Kind",
                    minor: true,
                    cell: (row) => _jsx(Badge, { tone: row.kind === "logs" ? "accent" : "neutral", children: row.kind }),
                },
                { title: "Holds", numeric: true, cell: (row) => holds(row, figures.get(row.name)) },
                { title: "Verified", width: "150px", minor: true, cell: (row) => _jsx(Verified, { found: figures.get(row.name) }) },
                { title: "Text", numeric: true, cell: (row) => sizeOf(figures.get(row.name)?.bytes_text) },
                { title: "Kept", numeric: true, minor: true, cell: (row) => sizeOf(keptOf(figures.get(row.name))) },
                { title: "Retention", numeric: true, minor: true, cell: (row) => retention(row) },
            ] }));
    }
}
/** Ask for the figures of one collection after another: each is a small job. */
function useFigures(rows) {
    const [found, setFound] = useState(new Map());
    const names = rows.map((row) => row.name).join(" ");
    useEffect(() => {
        const given = new AbortController();
        void (async () => {
            for (const name of names === "" ? [] : names.split(" ")) {
                try {
                    const one = await call(described(name), { signal: given.signal });
                    setFound((before) => new Map(before).set(name, one));
                }
                catch {
                    if (given.signal.aborted)
                        return; // a collection that cannot be counted has a dash
                }
            }
        })();
        return () => given.abort();
    }, [names]);
    return found;
}
function Verified({ found }) {
    if (!found)
        return _jsx("span", { class: "note", children: "\u2026" });
    if (found.documents === 0)
        return _jsx("span", { class: "note", children: "\u2013" });
    const share = found.verified / found.documents;
    return (_jsxs("span", { class: "verified", children: [_jsx(Meter, { label: "Verified", value: share, tone: share === 1 ? "good" : "accent", text: percent(share) }), _jsx("span", { children: share === 1 ? "all" : percent(Math.min(share, 0.999), 1) })] }));
}
function holds(row, found) {
    if (!found)
        return "…";
    return (_jsxs(_Fragment, { children: [count(found.documents), " ", _jsx("span", { class: "note", children: row.kind === "logs" ? "lines" : "docs" }), found.unreadable > 0 && _jsxs(Badge, { tone: "bad", children: [count(found.unreadable), " unreadable"] })] }));
}
function keptOf(found) {
    return found?.kept ? found.kept.bytes_memory + (found.kept.bytes_disk ?? 0) : undefined;
}
function sizeOf(value) {
    return value === undefined ? "–" : bytes(value);
}
function retention(row) {
    return row.retention_days ? duration(row.retention_days * DAY_S) : _jsx("span", { class: "note", children: "for good" });
}
