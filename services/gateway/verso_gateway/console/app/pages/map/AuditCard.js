import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** The audit of exactness: of each collection, how much was read back byte for byte. */
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api.js";
import { Badge, Card } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { Loading } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { useCollections } from "../../collections.js";
import { bytes, count, percent, plural } from "../../format.js";
import { addressOf } from "../../router.js";
const EVERY_MS = 10_000;
export function AuditCard({ scrubbed }) {
    const all = useCollections();
    const found = useStatistics(all?.map((one) => one.name) ?? []);
    const rows = (all ?? []).map((one) => ({ name: one.name, found: found.get(one.name) }));
    const documents = sum(rows.map((row) => row.found?.documents ?? 0));
    const verified = sum(rows.map((row) => row.found?.verified ?? 0));
    const unreadable = sum(rows.map((row) => row.found?.unreadable ?? 0));
    const read = scrubbed.sound + scrubbed.repaired + scrubbed.damaged;
    return (_jsxs(Card, { title: "Exactness", note: "every text is decoded from what is stored, and compared, before it is dropped", actions: _jsx(Badge, { tone: unreadable + scrubbed.damaged > 0 ? "bad" : verified === documents ? "good" : "accent", children: unreadable > 0
                ? `${plural(unreadable, "document")} unreadable`
                : verified === documents
                    ? `all ${count(documents)} verified`
                    : `${count(verified)} of ${count(documents)} verified` }), flush: true, children: [all === null ? (_jsx("div", { class: "card-body", children: _jsx(Loading, { lines: 4 }) })) : (_jsx(Table, { caption: "Verified documents by collection", rows: rows, rowKey: (row) => row.name, to: (row) => addressOf(`collections/${row.name}`), columns: [
                    { title: "Collection", cell: (row) => row.name },
                    { title: "Documents", numeric: true, minor: true, cell: (row) => (row.found ? count(row.found.documents) : "…") },
                    { title: "Text", numeric: true, minor: true, cell: (row) => (row.found ? bytes(row.found.bytes_text) : "…") },
                    {
                        title: "Read back exactly",
                        width: "34%",
                        cell: (row) => (row.found ? _jsx(Read, { found: row.found }) : "…"),
                    },
                    {
                        title: "Unreadable",
                        numeric: true,
                        cell: (row) => (row.found?.unreadable ? _jsx(Badge, { tone: "bad", children: count(row.found.unreadable) }) : "0"),
                    },
                ] })), read > 0 && (_jsxs("p", { class: "card-foot note", children: ["Read again by the scrub so far: ", count(read), ", of which ", count(scrubbed.repaired), " were repaired and ", count(scrubbed.damaged), " are damaged."] }))] }));
}
function Read({ found }) {
    if (found.documents === 0)
        return _jsx("span", { class: "note", children: "empty" });
    const share = found.verified / found.documents;
    return (_jsxs("span", { class: "metered", children: [_jsx(Meter, { label: `${found.name}: read back exactly`, value: share, tone: share === 1 ? "good" : "accent", text: percent(share) }), _jsx("span", { children: share === 1 ? "all" : `${count(found.documents - found.verified)} to go` })] }));
}
/** Ask for the figures of each collection in turn, and again every ten seconds. */
function useStatistics(names) {
    const [found, setFound] = useState(new Map());
    const key = names.join(" ");
    useEffect(() => {
        const given = new AbortController();
        const read = async () => {
            for (const name of key === "" ? [] : key.split(" ")) {
                try {
                    const one = await call({ method: "GET", path: `/v1/collections/${name}` }, { signal: given.signal });
                    setFound((before) => new Map(before).set(name, one));
                }
                catch {
                    if (given.signal.aborted)
                        return; // one that cannot be counted keeps its dots
                }
            }
        };
        void read();
        const timer = setInterval(() => document.visibilityState === "visible" && void read(), EVERY_MS);
        return () => {
            given.abort();
            clearInterval(timer);
        };
    }, [key]);
    return found;
}
function sum(values) {
    return values.reduce((total, value) => total + value, 0);
}
