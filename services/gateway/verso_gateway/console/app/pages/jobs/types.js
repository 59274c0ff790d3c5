/** Answers of the API that the jobs page reads. */
export function hasEnded(status) {
    return status !== "queued" && status !== "running";
}
/** What a kind of job does, as a person would say it. */
export function kindText(kind) {
    return KINDS[kind] ?? kind.replaceAll("_", " ");
}
/** Kinds that change something are listed; the others are reads whose callers wait. */
export const CHANGES = [
    "ingest",
    "ingest_lines",
    "update",
    "delete",
    "delete_matching",
    "collection_create",
    "collection_change",
    "collection_delete",
    "migrate",
    "fit",
    "train",
    "models",
    "scrub",
];
export const READS = ["search", "answer", "classify", "score", "embed", "reconstruct", "cluster", "lines", "volume", "labels", "statements", "list", "count", "facets", "stats", "heads"];
const KINDS = {
    ingest: "ingest documents",
    ingest_lines: "ingest lines",
    update: "change metadata",
    delete: "delete documents",
    delete_matching: "delete by filter",
    collection_create: "make a collection",
    collection_change: "change a collection",
    collection_delete: "delete a collection",
    migrate: "migrate a collection",
    fit: "fit a codec",
    train: "train a head",
    models: "change models",
    scrub: "read everything again",
    search: "search",
    answer: "answer",
    classify: "classify",
    score: "score pairs",
    embed: "embed",
    reconstruct: "rebuild texts",
    cluster: "group",
    lines: "read lines",
    volume: "count lines",
    labels: "list labels",
    statements: "list statements",
    list: "list documents",
    count: "count documents",
    facets: "count values",
    stats: "measure a collection",
    heads: "list heads",
};
