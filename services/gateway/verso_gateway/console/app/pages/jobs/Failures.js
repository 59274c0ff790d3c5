import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** The items of a job that failed, with their places in the request. */
import { useEffect, useState } from "preact/hooks";
import { call, problemFrom } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Card } from "../../components/Layout.js";
import { ErrorState, Loading } from "../../components/States.js";
import { count, plural } from "../../format.js";
const PAGE = 50;
export function Failures({ path, failed }) {
    const [rows, setRows] = useState([]);
    const [cursor, setCursor] = useState(undefined);
    const [problem, setProblem] = useState(undefined);
    const [busy, setBusy] = useState(false);
    const more = async (from, signal) => {
        setBusy(true);
        let next = from;
        let found = [];
        try {
            // A page may be empty where many parts of the job have no failures.
            do {
                const request = { method: "GET", path: `${path}/failures`, query: { limit: PAGE, cursor: next } };
                const page = await call(request, signal ? { signal } : {});
                found = [...found, ...page.failures];
                next = page.next_cursor;
            } while (next !== null && found.length === 0);
            setRows((before) => [...before, ...found]);
            setCursor(next);
        }
        catch (error) {
            if (signal?.aborted)
                return;
            setProblem(problemFrom(error));
        }
        setBusy(false);
    };
    useEffect(() => {
        const control = new AbortController();
        void more(null, control.signal);
        return () => control.abort();
    }, [path]);
    return (_jsxs(Card, { flush: true, title: "What failed", note: plural(failed, "item"), children: [problem && _jsx(ErrorState, { problem: problem }), rows.length === 0 && cursor === undefined && !problem && (_jsx("div", { class: "jobs-wait", children: _jsx(Loading, { lines: 3, label: "Reading what failed" }) })), rows.length === 0 && cursor === null && _jsx("p", { class: "note jobs-more", children: "The reasons are not kept any more." }), _jsx("ol", { class: "failures", children: rows.map((row, index) => (_jsxs("li", { children: [_jsxs("span", { class: "failure-place", children: [placeText(row), row.id && _jsx("code", { children: row.id })] }), _jsx("span", { class: "failure-detail", children: row.error.detail }), _jsx("a", { href: `/docs/errors/${row.error.code}`, target: "_blank", rel: "noreferrer", children: row.error.code })] }, index))) }), typeof cursor === "string" && (_jsx("div", { class: "jobs-more", children: _jsx(Button, { small: true, busy: busy, onClick: () => void more(cursor), children: "More" }) }))] }));
}
/** Places count from 1, as people do. */
function placeText(row) {
    const many = row.items ?? 1;
    if (row.item === null)
        return many > 1 ? plural(many, "item") : "item";
    return many > 1 ? `items ${count(row.item + 1)} to ${count(row.item + many)}` : `item ${count(row.item + 1)}`;
}
