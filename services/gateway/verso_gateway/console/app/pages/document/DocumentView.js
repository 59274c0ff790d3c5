import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
import { segment, send } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples, keywords, python } from "../../components/CodeSamples.js";
import { CopyButton } from "../../components/CopyButton.js";
import { Highlight } from "../../components/Highlight.js";
import { Icon } from "../../components/Icon.js";
import { Badge, Card, Facts, Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Tabs } from "../../components/Tabs.js";
import { toastProblem } from "../../components/Toast.js";
import { conditionText, scalarsOf } from "../../filters.js";
import { count, milliseconds, plural, score, time } from "../../format.js";
import { useRequest } from "../../request.js";
import { Link, addressOf, place, setQuery } from "../../router.js";
import { fromBase64, hexDump, spanOf } from "../../text.js";
import { Draft } from "./Draft.js";
import { Storage } from "./Storage.js";
const NEIGHBOURS = 6;
export function DocumentView({ collection, id }) {
    const path = `/v1/documents/${segment(id)}`;
    const request = { method: "GET", path, query: { collection: collection.name } };
    const stored = { method: "GET", path: `/v1/records/${segment(id)}`, query: { collection: collection.name } };
    const near = {
        method: "POST",
        path: "/v1/search",
        body: { collection: collection.name, id, limit: NEIGHBOURS + 4 },
    };
    const document_ = useRequest(request);
    const found = document_.data !== undefined;
    const records = useRequest(found && collection.kind === "documents" ? stored : null);
    const neighbours = useRequest(found && collection.kind === "documents" ? near : null);
    const samples = [
        { title: "Read the exact text", request, python: `text = client.get(${python(id)}${keywords({ collection: collection.name })}).data` },
        { title: "What is near it", request: near, python: `found = client.search(id=${python(id)}${keywords({ collection: collection.name })})` },
    ];
    const back = addressOf("documents", { collection: collection.name });
    const actions = (_jsxs(_Fragment, { children: [_jsx(CodeSamples, { samples: samples }), found && (_jsx(Button, { small: true, icon: "download", onClick: () => void download(request, id), children: "Download" }))] }));
    return (_jsx(Page, { title: id, wide: true, about: _jsxs(_Fragment, { children: [_jsx(Link, { to: back, children: collection.name }), document_.data?.time != null && _jsxs(_Fragment, { children: [" \u00B7 ", time(document_.data.time)] })] }), actions: actions, children: document_.problem ? (document_.problem.code === "document_unknown" ? (_jsxs(Empty, { icon: "document", title: "There is no such document", children: [_jsxs("p", { children: [collection.name, " has no document ", _jsx("code", { children: id }), ". It may have been deleted."] }), _jsxs(Button, { to: back, children: ["All documents of ", collection.name] })] })) : (_jsx(ErrorState, { problem: document_.problem, retry: document_.reload }))) : document_.data === undefined ? (_jsx(Loading, { lines: 8, label: "Rebuilding the text" })) : (_jsxs("div", { class: "document-columns", children: [_jsx(DocumentText, { stored: document_.data, tookMs: document_.tookMs, collection: collection, records: records.data }), _jsxs("aside", { class: "document-side", "aria-label": "About this document", children: [_jsx(About, { stored: document_.data, collection: collection, records: records.data }), records.data && _jsx(Storage, { records: records.data }), _jsx(Neighbours, { id: id, collection: collection, answer: neighbours })] })] })) }));
}
function DocumentText({ stored, tookMs, collection, records, }) {
    const query = place.value.query;
    const asked = query.get("view");
    const view = asked === "bytes" || (asked === "draft" && records !== undefined) ? asked : "text";
    const data = stored.text != null ? new TextEncoder().encode(stored.text) : fromBase64(stored.text_base64 ?? "");
    return (_jsxs("div", { class: "card document-text", children: [_jsxs("header", { class: "document-head", children: [_jsxs(Badge, { tone: "good", title: "Rebuilt from the vector and the patch; length and checksum are those of the text that came in", children: [_jsx(Icon, { name: "exact", size: 14 }), " exact, every byte checked"] }), _jsxs("span", { class: "note", children: [plural(data.length, "byte"), tookMs === undefined ? "" : ` · rebuilt in ${milliseconds(tookMs)}`] }), stored.text != null && _jsx(CopyButton, { text: stored.text, label: "Copy the text" })] }), _jsxs(Tabs, { label: "Ways to see the document", tabs: [
                    { id: "text", label: "Exact text" },
                    ...(records === undefined ? [] : [{ id: "draft", label: "From the vector alone" }]),
                    { id: "bytes", label: "Bytes" },
                ], selected: view, onSelect: (one) => setQuery({ view: one === "text" ? null : one }, { replace: true }), children: [view === "text" && _jsx(ExactText, { stored: stored, records: records }), view === "draft" && records && _jsx(Draft, { records: records, collection: collection }), view === "bytes" && (_jsx("pre", { class: "bytes", tabIndex: 0, children: hexDump(data) }))] })] }));
}
function ExactText({ stored, records }) {
    if (stored.text == null) {
        return (_jsxs(Empty, { icon: "document", title: "These bytes are not text", children: [_jsx("p", { children: "They are not UTF-8, so they are shown as bytes." }), _jsx(Button, { onClick: () => setQuery({ view: "bytes" }), children: "Show the bytes" })] }));
    }
    const spans = markedSpans(stored.text, records);
    return (_jsx("pre", { class: "document-exact", "data-exact": true, ref: scrollToMark, children: _jsx(Highlight, { text: stored.text, spans: spans }) }));
}
/** Return the part that the address marks: code points of the document, or of one of its records. */
function markedSpans(text, records) {
    const query = place.value.query;
    const [start, end] = [query.get("start"), query.get("end")].map((value) => (value === null ? Number.NaN : Number(value)));
    if (start === undefined || end === undefined || !(end > start))
        return [];
    const chunk = Number(query.get("chunk") ?? 0);
    if (chunk === 0)
        return [spanOf(text, start, end, "answer")];
    const before = records?.records.slice(0, chunk).map((record) => record.bytes_text);
    if (before === undefined || before.length < chunk || before.some((size) => size == null))
        return [];
    const offset = before.reduce((sum, size) => sum + (size ?? 0), 0);
    const head = new TextDecoder().decode(new TextEncoder().encode(text).subarray(0, offset)).length;
    const inner = spanOf(text.slice(head), start, end, "answer");
    return [{ ...inner, start: inner.start + head, end: inner.end + head }];
}
const scrolled = new WeakSet();
function scrollToMark(element) {
    const mark = element?.querySelector("mark");
    if (!mark || scrolled.has(mark))
        return;
    scrolled.add(mark);
    mark.scrollIntoView({ block: "center" });
}
function About({ stored, collection, records }) {
    const values = scalarsOf(stored.metadata ?? {});
    const facts = [
        ["Collection", collection.name],
        ["Time", time(stored.time)],
        ["Parts", stored.chunks == null ? "–" : count(stored.chunks)],
        ...(records === undefined
            ? []
            : [["State", records.verified ? _jsx(Badge, { tone: "good", children: "verified, text dropped" }) : _jsx(Badge, { tone: "warning", children: "not yet verified" })]]),
    ];
    return (_jsxs(Card, { title: "About", children: [_jsx(Facts, { facts: facts }), values.length > 0 && (_jsx("ul", { class: "chips document-metadata", "aria-label": "Metadata", children: values.map((one) => (_jsx("li", { children: _jsxs(Link, { class: "chip", title: "Documents with this value", to: addressOf("documents", { collection: collection.name, where: [conditionText(one)] }), children: [_jsx("span", { class: "chip-field", children: one.field }), " ", String(one.value)] }) }, conditionText(one)))) }))] }));
}
function Neighbours({ id, collection, answer }) {
    if (collection.kind === "logs")
        return null;
    const others = (answer.data?.hits ?? []).filter((hit) => hit.document !== id).slice(0, NEIGHBOURS);
    return (_jsx(Card, { title: "Nearest", note: "by vector", flush: true, children: answer.problem ? (_jsx(ErrorState, { problem: answer.problem, retry: answer.reload })) : answer.data === undefined ? (_jsx("div", { class: "padded", children: _jsx(Loading, { lines: 4 }) })) : others.length === 0 ? (_jsx("p", { class: "padded note", children: "Nothing else is stored." })) : (_jsx("ol", { class: "neighbours", children: others.map((hit) => (_jsx("li", { children: _jsxs(Link, { "data-result": true, to: addressOf("documents", { collection: collection.name, id: hit.document }), children: [_jsx("span", { class: "neighbour-name", children: hit.document }), _jsx("span", { class: "neighbour-score", title: "Cosine of the vectors", children: score(hit.score) }), _jsx("span", { class: "neighbour-text", children: (hit.text ?? "").slice(0, 160) })] }) }, hit.id))) })) }));
}
/** Save the bytes as they came in. */
async function download(request, id) {
    try {
        const response = await send(request, { accept: "application/octet-stream" });
        const url = URL.createObjectURL(await response.blob());
        const link = window.document.createElement("a");
        link.href = url;
        link.download = id.replace(/[^\p{L}\p{N}._-]+/gu, "_");
        link.click();
        setTimeout(() => URL.revokeObjectURL(url), 10_000);
    }
    catch (error) {
        toastProblem(error);
    }
}
