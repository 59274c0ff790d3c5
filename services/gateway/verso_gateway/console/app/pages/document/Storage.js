import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** What is stored in place of the text: bytes of vector and patch beside those of the text. */
import { Card } from "../../components/Layout.js";
import { Parts } from "../../components/Meter.js";
import { bytes, count, percent } from "../../format.js";
const SHOWN = 8;
export function Storage({ records }) {
    const known = records.records;
    const patch = sum(known.map((record) => record.bytes_patch));
    const vector = sum(known.map((record) => record.bytes_vector));
    const text = sum(known.map((record) => record.bytes_text ?? 0));
    const codecs = [...new Set(known.map((record) => record.codec))];
    const note = known.length < records.chunks ? `first ${count(known.length)} of ${count(records.chunks)} parts` : undefined;
    return (_jsxs(Card, { title: "Stored as", note: note, children: [_jsx(Parts, { label: "Bytes stored", total: Math.max(text, vector + patch), parts: [
                    { label: "vector", value: vector, text: bytes(vector), colour: 1 },
                    { label: "patch", value: patch, text: bytes(patch), colour: 2 },
                ] }), _jsxs("p", { class: "storage-text", children: ["The text has ", _jsx("b", { children: bytes(text) }), "; the patch alone takes ", percent(text > 0 ? patch / text : 0), " of that.", vector + patch > text && _jsx("span", { class: "storage-more", children: " With the vector, which a search needs, it takes more than the text." }), " ", "Codec: ", codecs.join(", "), "."] }), known.length > 1 && (_jsxs("table", { class: "table storage-parts", children: [_jsx("caption", { class: "visually-hidden", children: "Parts of the document" }), _jsx("thead", { children: _jsxs("tr", { children: [_jsx("th", { scope: "col", children: "Part" }), _jsx("th", { scope: "col", children: "Codec" }), _jsx("th", { scope: "col", class: "numeric", children: "Text" }), _jsx("th", { scope: "col", class: "numeric", children: "Patch" })] }) }), _jsx("tbody", { children: known.slice(0, SHOWN).map((record, index) => (_jsxs("tr", { children: [_jsx("td", { children: index + 1 }), _jsx("td", { children: record.codec }), _jsx("td", { class: "numeric", children: record.bytes_text == null ? "–" : bytes(record.bytes_text) }), _jsx("td", { class: "numeric", children: bytes(record.bytes_patch) })] }, record.id))) })] }))] }));
}
function sum(values) {
    return values.reduce((total, value) => total + value, 0);
}
