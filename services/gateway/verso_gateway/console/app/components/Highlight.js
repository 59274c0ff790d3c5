import { Fragment as _Fragment, jsx as _jsx } from "preact/jsx-runtime";
/**
 * Marks overlap: each piece of text carries the kinds of all spans that cover it.
 *
 * @param spans in UTF-16 units (`utf16Offsets` makes them out of the API's code points).
 */
export function Highlight({ text, spans }) {
    const edges = new Set([0, text.length]);
    for (const span of spans) {
        edges.add(clamp(span.start, text));
        edges.add(clamp(span.end, text));
    }
    const cuts = [...edges].sort((a, b) => a - b);
    const pieces = [];
    for (let index = 0; index + 1 < cuts.length; index += 1) {
        const [start = 0, end = 0] = [cuts[index], cuts[index + 1]];
        const piece = text.slice(start, end);
        const kinds = spans.filter((span) => span.start <= start && span.end >= end).map((span) => span.kind ?? "answer");
        if (kinds.length === 0)
            pieces.push(piece);
        else
            pieces.push(_jsx("mark", { class: [...new Set(kinds)].join(" "), children: piece }, start));
    }
    return _jsx(_Fragment, { children: pieces });
}
function clamp(offset, text) {
    return Math.max(0, Math.min(text.length, offset));
}
