import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** What the decoder writes from a vector alone, beside the text with what the patch corrects. */
import { useState } from "preact/hooks";
import { segment } from "../../api.js";
import { Select } from "../../components/Field.js";
import { Highlight } from "../../components/Highlight.js";
import { Stat, Stats } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { bytes, percent } from "../../format.js";
import { useRequest } from "../../request.js";
import { utf16Offsets } from "../../text.js";
export function Draft({ records, collection }) {
    const [part, setPart] = useState(0);
    const name = records.records[part]?.id ?? records.id;
    const drafted = useRequest({
        method: "GET",
        path: `/v1/records/${segment(name)}`,
        query: { collection: collection.name, draft: true },
    });
    const text = useRequest({
        method: "POST",
        path: "/v1/reconstruct",
        body: { collection: collection.name, ids: [name] },
    });
    const record = drafted.data?.records[0];
    const exact = text.data?.results[0]?.text;
    return (_jsxs("div", { class: "draft", children: [records.records.length > 1 && (_jsx(Select, { label: "Part of the document", value: String(part), choices: records.records.map((one, index) => ({ value: String(index), label: `${index + 1} (${one.codec})` })), onChange: (value) => setPart(Number(value)) })), drafted.problem ? (_jsx(ErrorState, { problem: drafted.problem, retry: drafted.reload })) : drafted.loading || drafted.data === undefined || text.data === undefined ? (_jsx(Loading, { lines: 5, label: "The decoder writes" })) : record?.draft == null || exact == null ? (_jsx(Empty, { icon: "document", title: "The decoder cannot read this part", children: _jsxs("p", { children: ["Its codec (", record?.codec, ") stores the text without the decoder."] }) })) : (_jsxs(_Fragment, { children: [_jsxs(Stats, { children: [_jsx(Stat, { label: "Word pieces guessed right", value: percent(record.draft.tokens > 0 ? record.draft.right / record.draft.tokens : 0), note: `${record.draft.right} of ${record.draft.tokens}, each from those before it` }), _jsx(Stat, { label: "Patch", value: bytes(record.bytes_patch), note: `codec ${record.codec}` }), _jsx(Stat, { label: "Text", value: bytes(record.bytes_text ?? 0), note: `vector ${bytes(record.bytes_vector)}` })] }), _jsxs("div", { class: "draft-columns", children: [_jsxs("section", { children: [_jsx("h2", { children: "From the vector alone" }), _jsx("p", { class: "note", children: "A guess, never presented as the text." }), _jsx("pre", { class: "document-exact guess", children: record.draft.guess })] }), _jsxs("section", { children: [_jsx("h2", { children: "The exact text" }), _jsxs("p", { class: "note", children: ["Marked: where the decoder would have written something else", record.codec === "neural"
                                                ? ", and the patch corrects it."
                                                : `. The codec ${record.codec} stores this text in fewer bytes than such corrections take.`] }), _jsx("pre", { class: "document-exact", children: _jsx(Highlight, { text: exact, spans: corrected(exact, record.draft.corrections ?? []) }) })] })] })] }))] }));
}
function corrected(text, corrections) {
    const points = corrections.flatMap((one) => [one.start ?? 0, one.end ?? 0]);
    const units = utf16Offsets(text, points);
    return corrections.map((_, index) => ({
        start: units[2 * index] ?? 0,
        end: units[2 * index + 1] ?? 0,
        kind: "corrected",
    }));
}
