import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Drop files to ingest; each file says how far it is until its documents are stored. */
import { useEffect, useRef, useState } from "preact/hooks";
import { call, problemFrom } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Icon } from "../../components/Icon.js";
import { Card } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { bytes, count, plural } from "../../format.js";
import { follow } from "../../jobs.js";
import { Link, addressOf } from "../../router.js";
import { partsOf } from "./files.js";
let last = 0;
export function IngestCard({ collection, onStored }) {
    const [files, setFiles] = useState([]);
    const [over, setOver] = useState(false);
    const queue = useRef(Promise.resolve());
    const picker = useRef(null);
    const stops = useRef(new Set());
    useEffect(() => () => stops.current.forEach((stop) => stop()), []);
    const change = (key, update) => setFiles((before) => before.map((one) => (one.key === key ? { ...one, ...update(one) } : one)));
    const take = (chosen) => {
        for (const file of chosen ?? []) {
            last += 1;
            const key = last;
            const fresh = {
                key, name: file.name, size: file.size, sent: 0, accepted: 0, refused: 0, stored: 0, failed: 0,
                jobs: [], problem: undefined, phase: "waiting",
            };
            setFiles((before) => [fresh, ...before]);
            queue.current = queue.current.then(() => ingest(file, key));
        }
    };
    const ingest = async (file, key) => {
        change(key, () => ({ phase: "sending" }));
        const ends = [];
        try {
            for await (const part of partsOf(file, collection)) {
                const job = await call(part.request, { detached: true });
                const refused = job.refused ?? 0;
                change(key, (one) => ({
                    sent: one.sent + part.size,
                    accepted: one.accepted + job.accepted,
                    refused: one.refused + refused,
                    jobs: [...one.jobs, job.id],
                    ...(job.refusals?.[0] ? { problem: job.refusals[0].error.detail } : {}),
                }));
                ends.push(stored(key, job.id, job.accepted));
            }
            change(key, () => ({ phase: "storing", sent: file.size }));
        }
        catch (error) {
            change(key, () => ({ problem: problemFrom(error).detail, phase: "done" }));
        }
        // The next file is sent meanwhile.
        void Promise.all(ends).then(() => {
            change(key, () => ({ phase: "done" }));
            onStored();
        });
    };
    /** Follow a part's job to its end; items of lines are slices, so its share counts. */
    const stored = (key, job, accepted) => new Promise((resolve) => {
        let known = { ok: 0, err: 0 };
        const stop = follow(job, ({ state, ended }) => {
            if (state !== undefined) {
                const each = state.items > 0 ? accepted / state.items : 0;
                const now = { ok: Math.round(state.ok * each), err: Math.round(state.err * each) };
                const { ok, err } = known;
                change(key, (one) => ({ stored: one.stored + now.ok - ok, failed: one.failed + now.err - err }));
                known = now;
            }
            if (ended) {
                stops.current.delete(stop);
                stop();
                resolve();
            }
        });
        stops.current.add(stop);
    });
    const isLog = collection.kind === "logs";
    return (_jsx(Card, { title: isLog ? "Add lines" : "Add documents", actions: _jsx(CodeSamples, { samples: samples(collection) }), children: _jsxs("div", { class: "stack", children: [_jsxs("div", { class: over ? "drop over" : "drop", onDragOver: (event) => {
                        event.preventDefault();
                        setOver(true);
                    }, onDragLeave: () => setOver(false), onDrop: (event) => {
                        event.preventDefault();
                        setOver(false);
                        take(event.dataTransfer?.files ?? null);
                    }, children: [_jsx(Icon, { name: "upload", size: 22 }), _jsxs("p", { children: ["Drop files here, or", " ", _jsx(Button, { small: true, onClick: () => picker.current?.click(), children: "choose files" })] }), _jsx("p", { class: "note", children: isLog
                                ? "Every line of a file becomes a line; .jsonl holds one record a line."
                                : "A text file becomes a document named after it, and so does the text of PDF, HTML, office files and e-mail; .jsonl and .json hold documents." }), _jsx("input", { ref: picker, type: "file", multiple: true, class: "visually-hidden", tabIndex: -1, "aria-label": "Files to ingest", onChange: (event) => {
                                take(event.currentTarget.files);
                                event.currentTarget.value = "";
                            } })] }), files.length > 0 && (_jsx("ul", { class: "taken", "aria-label": "Files", "aria-live": "polite", children: files.map((one) => (_jsx(TakenRow, { file: one, unit: isLog ? "line" : "document" }, one.key))) }))] }) }));
}
function TakenRow({ file, unit }) {
    const failed = file.failed + file.refused;
    const whole = Math.max(1, file.accepted);
    const sending = file.phase === "waiting" || file.phase === "sending";
    const share = sending ? file.sent / Math.max(1, file.size) : (file.stored + file.failed) / whole;
    const bad = file.problem !== undefined || failed > 0;
    return (_jsxs("li", { children: [_jsxs("span", { class: "taken-name", children: [_jsx(Icon, { name: file.phase === "done" ? (bad ? "warning" : "check") : "document", size: 16 }), _jsx("b", { children: file.name }), _jsx("span", { class: "note", children: bytes(file.size) })] }), _jsx("span", { class: "taken-state", children: stateOf(file, unit) }), _jsx(Meter, { label: `${file.name}: ${sending ? "sent" : "stored"}`, value: file.phase === "done" && file.accepted === 0 ? 0 : share, tone: bad ? "bad" : file.phase === "done" ? "good" : "accent" }), file.problem && _jsx("span", { class: "hint bad", children: file.problem }), failed > 0 && file.jobs[0] && (_jsxs("span", { class: "note", children: [plural(failed, unit), " could not be stored: ", _jsx(Link, { to: addressOf(`jobs/${file.jobs[0]}`), children: "see why" })] }))] }));
}
function stateOf(file, unit) {
    if (file.phase === "waiting")
        return "waits";
    if (file.phase === "sending")
        return `sent ${bytes(file.sent)}`;
    if (file.phase === "storing")
        return `stored ${count(file.stored)} of ${plural(file.accepted, unit)}`;
    return file.stored > 0 ? `${plural(file.stored, unit)} stored` : "not stored";
}
function samples(collection) {
    if (collection.kind === "logs") {
        return [
            {
                title: "Send lines",
                request: {
                    method: "POST",
                    path: "/v1/ingest",
                    query: { collection: collection.name, label: "file=app.log" },
                    data: { content: "", type: "text/plain" },
                },
                python: `client.ingest_lines([open("app.log", "rb").read()], collection="${collection.name}", labels={"file": "app.log"})`,
            },
        ];
    }
    const documents = [{ id: "note-1", text: "the disk of host a is full", metadata: { host: "a" } }];
    return [
        {
            title: "Send documents",
            request: { method: "POST", path: "/v1/ingest", body: { collection: collection.name, documents } },
            python: `from verso_client import Document\n\nclient.ingest([Document("the disk of host a is full", id="note-1", metadata={"host": "a"})], collection="${collection.name}")`,
        },
        {
            title: "Send a file, whose text becomes a document",
            request: {
                method: "POST",
                path: "/v1/ingest",
                query: { collection: collection.name, name: "manual.pdf", id: "manual.pdf" },
                data: { content: "", type: "application/pdf" },
            },
            python: `from pathlib import Path\n\nfrom verso_client import File\n\nclient.ingest([File(Path("manual.pdf").read_bytes(), name="manual.pdf", id="manual.pdf")], collection="${collection.name}")`,
        },
    ];
}
