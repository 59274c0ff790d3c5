import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Passages, or statements of a log collection, that a search found. */
import { useState } from "preact/hooks";
import { Button } from "../../components/Button.js";
import { Highlight } from "../../components/Highlight.js";
import { Icon } from "../../components/Icon.js";
import { Empty, ErrorState, Loading, Notice } from "../../components/States.js";
import { conditionText, includes, scalarsOf } from "../../filters.js";
import { count, milliseconds, plural, score, time } from "../../format.js";
import { Link, addressOf, setQuery } from "../../router.js";
import { wordSpans } from "../../text.js";
export function Hits({ hits, state, collection }) {
    const { data, problem, loading, reload, tookMs } = hits;
    if (problem)
        return _jsx(ErrorState, { problem: problem, retry: reload });
    if (data === undefined)
        return _jsx(Loading, { lines: 6, label: "Searching" });
    if (data.hits.length === 0) {
        return (_jsx(Empty, { icon: "search", title: "Nothing found", children: state.conditions.length > 0 || state.since || state.until ? (_jsxs(_Fragment, { children: [_jsxs("p", { children: ["No passage of ", collection.name, " passes the conditions."] }), _jsx(Button, { onClick: () => setQuery({ where: [], since: null, until: null }), children: "Remove the conditions" })] })) : (_jsx("p", { children: state.mode === "sparse" ? "No passage has these words. Try to compare by meaning." : `${collection.name} holds nothing yet.` })) }));
    }
    const logs = data.hits.some((hit) => hit.statement != null);
    return (_jsxs("section", { "aria-label": "Passages", "aria-busy": loading, class: loading ? "hits stale" : "hits", children: [_jsxs("header", { class: "hits-head", children: [_jsx("h2", { children: plural(data.hits.length, logs ? "statement" : "passage") }), tookMs !== undefined && _jsx("span", { class: "note", children: milliseconds(tookMs) })] }), _jsx("ol", { children: data.hits.map((hit) => (_jsx("li", { children: hit.statement != null ? (_jsx(StatementHit, { hit: hit, collection: collection, query: state.query })) : (_jsx(PassageHit, { hit: hit, collection: collection, state: state })) }, hit.id))) })] }));
}
const SHORT = 560;
const LINES = 8;
/** Return the beginning of a text that is long, cut at a line or a word. */
function beginning(text) {
    const lines = text.split("\n");
    const few = lines.length > LINES ? lines.slice(0, LINES).join("\n") : text;
    if (few.length <= SHORT)
        return few;
    const space = few.lastIndexOf(" ", SHORT);
    return few.slice(0, space > SHORT / 2 ? space : SHORT);
}
function PassageHit({ hit, collection, state }) {
    const [whole, setWhole] = useState(false);
    const text = (hit.text ?? "").trimEnd(); // the document's page shows the end as well
    const shown = whole ? text : beginning(text);
    return (_jsxs("article", { class: "hit", children: [_jsxs("header", { children: [_jsx(Link, { class: "hit-title", "data-result": true, to: addressOf("documents", { collection: collection.name, id: hit.document, chunk: hit.chunk || null }), children: hit.document }), hit.chunk > 0 && _jsxs("span", { class: "note", children: ["part ", hit.chunk + 1] }), hit.time != null && _jsx("time", { class: "note", children: time(hit.time) }), _jsx(Scores, { hit: hit })] }), hit.error ? (_jsxs(Notice, { tone: "bad", children: [hit.error.detail, " (", hit.error.code, ")"] })) : hit.text == null ? (_jsx("p", { class: "note", children: "Bytes that are not text; the document page shows them." })) : (_jsxs("p", { class: "exact", children: [_jsx(Highlight, { text: shown, spans: wordSpans(shown, state.query) }), shown.length < text.length && (_jsxs(_Fragment, { children: [" … ", _jsx("button", { type: "button", class: "more", onClick: () => setWhole(true), children: "show all" })] }))] })), _jsx(Values, { hit: hit, conditions: state.conditions })] }));
}
function Values({ hit, conditions }) {
    const values = scalarsOf(hit.metadata ?? {}).slice(0, 8);
    if (values.length === 0)
        return null;
    return (_jsx("ul", { class: "chips", "aria-label": "Metadata", children: values.map((one) => (_jsx("li", { children: _jsxs("button", { type: "button", class: includes(conditions, one) ? "chip on" : "chip", title: "Only documents with this value", onClick: () => {
                    if (!includes(conditions, one))
                        setQuery({ where: [...conditions, one].map(conditionText) });
                }, children: [_jsx("span", { class: "chip-field", children: one.field }), " ", String(one.value)] }) }, conditionText(one)))) }));
}
/** The score, and behind it the parts that it is made of. */
function Scores({ hit }) {
    const parts = [
        ["meaning (cosine)", hit.explain?.dense],
        ["words (BM25)", hit.explain?.sparse],
        ["both", hit.explain?.fused],
        ["read by a head", hit.explain?.rerank_score],
    ].filter((part) => typeof part[1] === "number");
    return (_jsxs("dl", { class: "scores", children: [parts.length === 0 && (_jsxs("div", { children: [_jsx("dt", { children: "score" }), _jsx("dd", { children: score(hit.score) })] })), parts.map(([name, value]) => (_jsxs("div", { children: [_jsx("dt", { children: name }), _jsx("dd", { children: score(value) })] }, name)))] }));
}
function StatementHit({ hit, collection, query }) {
    return (_jsxs("article", { class: "hit", children: [_jsx("header", { children: _jsx(Link, { class: "hit-title mono", "data-result": true, to: addressOf("logs", { collection: collection.name, statement: hit.statement_id }), children: hit.statement }) }), _jsxs("p", { class: "note", children: [plural(hit.count ?? 0, "line"), " \u00B7 ", time(hit.first_seen), " to ", time(hit.last_seen), " \u00B7 score ", score(hit.score)] }), _jsx("ul", { class: "hit-lines", children: (hit.lines ?? []).map((line) => (_jsxs("li", { children: [_jsx(Icon, { name: "logs", size: 14 }), _jsx(Link, { to: addressOf("logs", { collection: collection.name, line: line.id }), title: "This line, and those around it", children: _jsx("time", { children: time(line.time) }) }), _jsx("span", { class: "exact", children: _jsx(Highlight, { text: line.text ?? "", spans: wordSpans(line.text ?? "", query) }) })] }, line.id))) }), (hit.count ?? 0) > (hit.lines?.length ?? 0) && (_jsxs("p", { class: "note", children: ["and ", count((hit.count ?? 0) - (hit.lines?.length ?? 0)), " more"] }))] }));
}
