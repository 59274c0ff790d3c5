/** The bytes of a collection in three views; in one of them Verso usually takes more, and says so. */
const FLOAT32_BYTES = 4;
/** Return the views that a collection's figures allow; none of an empty one. */
export function viewsOf(found) {
    const text = found.bytes_text;
    if (text === 0)
        return [];
    const lines = found.lines;
    const isLog = found.kind === "logs";
    const patches = isLog ? (lines?.bytes_memory ?? 0) + found.bytes_entries : found.bytes_entries;
    const vectors = isLog ? 0 : found.bytes_vectors + found.bytes_terms;
    const texts = isLog ? (lines?.lines ?? 0) + found.chunks : found.chunks;
    const usual = texts * (found.dim ?? 0) * FLOAT32_BYTES + text;
    const kept = found.kept;
    const all = kept ? kept.bytes_memory + (kept.bytes_disk ?? vectors) : patches + vectors;
    return [
        {
            id: "text",
            title: "Instead of the text",
            about: isLog
                ? "What stands for the lines, the vectors of their statements included, against the lines."
                : "What stands for the texts beside their vectors: patches, hashes and checksums.",
            ours: patches,
            oursLabel: isLog ? "blocks and statements" : "patches",
            theirs: text,
            theirsLabel: "the text",
        },
        {
            id: "search",
            title: "Against a usual vector search",
            about: "Everything needed to search and to read, against float32 vectors and the texts.",
            ours: patches + vectors,
            oursLabel: isLog ? "blocks and statements" : "vectors and patches",
            theirs: usual,
            theirsLabel: "float32 vectors and text",
        },
        {
            id: "all",
            title: "Against the text alone",
            about: "All that the stores hold, indexes and overhead included, against the texts without a search.",
            ours: all,
            oursLabel: "memory and disk",
            theirs: text,
            theirsLabel: "the text alone",
        },
    ];
}
/** Return what a view says: "saves 76 %", "takes 6.1 times as much". */
export function verdict(view) {
    const ratio = view.ours / view.theirs;
    if (ratio <= 1)
        return { text: `saves ${Math.round((1 - ratio) * 100)} %`, more: false };
    if (ratio < 1.995)
        return { text: `takes ${Math.max(1, Math.round((ratio - 1) * 100))} % more`, more: true };
    return { text: `takes ${ratio.toFixed(ratio < 10 ? 1 : 0)} times as much`, more: true };
}
