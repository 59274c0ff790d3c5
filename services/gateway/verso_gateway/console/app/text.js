/** Offsets in texts: the API counts code points, JavaScript UTF-16 units. */
/** Return the UTF-16 offsets of code points; an offset beyond the end is the end. */
export function utf16Offsets(text, points) {
    const order = points.map((_, index) => index).sort((a, b) => (points[a] ?? 0) - (points[b] ?? 0));
    const found = new Array(points.length).fill(text.length);
    let unit = 0;
    let point = 0;
    for (const index of order) {
        const wanted = points[index] ?? 0;
        while (point < wanted && unit < text.length) {
            unit += (text.codePointAt(unit) ?? 0) > 0xffff ? 2 : 1;
            point += 1;
        }
        found[index] = unit;
    }
    return found;
}
/** Return a part of a text that is given in code points as a span. */
export function spanOf(text, start, end, kind) {
    const [first = 0, last = 0] = utf16Offsets(text, [start, end]);
    return kind === undefined ? { start: first, end: last } : { start: first, end: last, kind };
}
/** Return where the words of a query stand in a text, whole words only, whatever their case. */
export function wordSpans(text, query, kind = "word") {
    const words = [...new Set(query.match(/[\p{L}\p{N}][\p{L}\p{N}_.-]*/gu) ?? [])]
        .map((word) => word.replace(/[.-]+$/, ""))
        .filter((word) => [...word].length > 2 && !STOP_WORDS.has(word.toLowerCase()));
    if (words.length === 0)
        return [];
    const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${escaped.join("|")})(?![\\p{L}\\p{N}])`, "giu");
    return [...text.matchAll(pattern)].map((one) => ({
        start: one.index,
        end: one.index + one[0].length,
        kind,
    }));
}
const STOP_WORDS = new Set(("the and for are was were what which who whom whose when where why how does did has have had " +
    "with that this from into its not can but you your they their there about than then").split(" "));
/** Return the bytes of base64. */
export function fromBase64(value) {
    const binary = atob(value);
    const data = new Uint8Array(binary.length);
    for (let index = 0; index < binary.length; index += 1)
        data[index] = binary.charCodeAt(index);
    return data;
}
/** Return bytes as lines of hexadecimal numbers, as `xxd` prints them. */
export function hexDump(data, limit = 4096) {
    const lines = [];
    for (let at = 0; at < Math.min(data.length, limit); at += 16) {
        const row = [...data.subarray(at, at + 16)];
        const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
        const shown = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "."));
        lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${shown.join("")}`);
    }
    if (data.length > limit)
        lines.push(`… ${data.length - limit} further bytes`);
    return lines.join("\n");
}
