/**
 * Dropped files as requests of `POST /v1/ingest`.
 *
 * In a collection of documents a text file is one document, whose id is the file's name; of PDF,
 * HTML, office files and e-mail it is the text that the gateway reads in them; files of JSON hold
 * documents as the API takes them. In a log collection each line of a file is a line.
 */
const PART_BYTES = 4 << 20;
const MOST_DOCUMENTS = 500;
/** The longest text that a document may have. */
export const MOST_TEXT_BYTES = 4 << 20;
const NEWLINE = 10;
/** Files whose text the gateway reads; their bytes and names say which format they have. */
const EXTRACTED = /\.(pdf|html?|xhtml|docx|pptx|xlsx|od[tps]|eml)$/i;
/** Yield the requests that take a file in, none of them large. */
export async function* partsOf(file, collection) {
    const isRows = /\.(jsonl|ndjson)$/i.test(file.name);
    if (isRows)
        yield* linesOf(file, collection.name, "application/x-ndjson", {});
    else if (collection.kind === "logs")
        yield* linesOf(file, collection.name, "text/plain", { label: `file=${file.name}` });
    else if (EXTRACTED.test(file.name))
        yield extractedOf(file, collection.name);
    else if (/\.json$/i.test(file.name))
        yield* documentsOf(await file.text(), collection.name);
    else
        yield await documentOf(file, collection.name);
}
async function* linesOf(file, collection, type, query) {
    let at = 0;
    let most = PART_BYTES;
    while (at < file.size) {
        const data = new Uint8Array(await file.slice(at, at + most).arrayBuffer());
        const isLast = at + data.length >= file.size;
        const cut = isLast ? data.length : data.lastIndexOf(NEWLINE) + 1;
        if (cut === 0) {
            most *= 2; // no line is cut
            continue;
        }
        most = PART_BYTES;
        const content = data.subarray(0, cut);
        yield {
            request: { method: "POST", path: "/v1/ingest", query: { collection, ...query }, data: { content, type } },
            size: cut,
        };
        at += cut;
    }
}
function* documentsOf(text, collection) {
    const value = JSON.parse(text);
    const held = Array.isArray(value) ? value : (value.documents ?? [value]);
    const size = new Blob([text]).size;
    for (let at = 0; at < held.length; at += MOST_DOCUMENTS) {
        const documents = held.slice(at, at + MOST_DOCUMENTS);
        yield {
            request: { method: "POST", path: "/v1/ingest", body: { collection, documents } },
            size: (size * documents.length) / held.length,
        };
    }
}
function extractedOf(file, collection) {
    const query = { collection, name: file.name, id: file.name };
    return {
        request: { method: "POST", path: "/v1/ingest", query, data: { content: file, type: "application/octet-stream" } },
        size: file.size,
    };
}
async function documentOf(file, collection) {
    if (file.size > MOST_TEXT_BYTES)
        throw new Error("A document may have 4 MiB; this file is longer.");
    const data = new Uint8Array(await file.arrayBuffer());
    const document = { id: file.name, ...textOf(data), metadata: { file: file.name } };
    return {
        request: { method: "POST", path: "/v1/ingest", body: { collection, documents: [document] } },
        size: file.size,
    };
}
function textOf(data) {
    try {
        return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data) };
    }
    catch {
        let binary = "";
        for (const byte of data)
            binary += String.fromCharCode(byte);
        return { text_base64: btoa(binary) };
    }
}
