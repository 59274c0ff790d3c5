import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Train a head on the labelled records of a collection or on a file of rows, and follow it. */
import { useState } from "preact/hooks";
import { call, problemFrom } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Chart } from "../../components/Chart.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Segmented, Select, Switch, TextField, Field } from "../../components/Field.js";
import { Badge, Card, Facts, Page } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { ErrorState, Notice } from "../../components/States.js";
import { useCollections } from "../../collections.js";
import { bytes, count, percent } from "../../format.js";
import { isOver, useJob } from "../../jobs.js";
import { useRequest } from "../../request.js";
import { Link, addressOf, place, setQuery } from "../../router.js";
import { shortVersion } from "./types.js";
const NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const START = {
    head: "", source: "collection", collection: "", labelKey: "", textColumn: "text", labelColumn: "label",
    share: "10", newLabels: false, licence: "",
};
export function TrainingView() {
    const job = place.value.query.get("job");
    return (_jsx(Page, { title: "Train a head", about: "A head that classifies learns from labelled texts. It is published as a canary, and nothing else changes.", actions: _jsx(Button, { kind: "quiet", small: true, icon: "left", to: addressOf("models"), children: "All models" }), children: job === null ? _jsx(TrainingForm, {}) : _jsx(TrainingProgress, { jobId: job }, job) }));
}
function TrainingForm() {
    const [wanted, setWanted] = useState({ ...START, ...fromAddress() });
    const [file, setFile] = useState(null);
    const [error, setError] = useState();
    const [busy, setBusy] = useState(false);
    const collections = useCollections() ?? [];
    const set = (change) => setWanted((before) => ({ ...before, ...change }));
    const collection = wanted.collection || collections[0]?.name || "default";
    const request = requestOf({ ...wanted, collection }, file);
    const nameWrong = wanted.head !== "" && !NAME.test(wanted.head);
    const ready = NAME.test(wanted.head) && (wanted.source === "collection" ? wanted.labelKey !== "" : file !== null);
    const submit = async () => {
        setBusy(true);
        setError(undefined);
        try {
            const job = await call(request, { detached: true });
            setQuery({ job: job.id });
        }
        catch (failed) {
            setError(problemFrom(failed).detail);
            setBusy(false);
        }
    };
    return (_jsx(Card, { title: "What it learns from", actions: _jsx(CodeSamples, { samples: [{ title: "Train a head", request, python: pythonOf(wanted, collection) }] }), children: _jsxs("form", { class: "training", onSubmit: (event) => {
                event.preventDefault();
                if (ready)
                    void submit();
            }, children: [error && _jsx(Notice, { tone: "bad", children: error }), _jsx(Segmented, { label: "Source", value: wanted.source, choices: [
                        { value: "collection", label: "Records of a collection" },
                        { value: "file", label: "A file of rows" },
                    ], onChange: (source) => set({ source }) }), _jsxs("div", { class: "pair", children: [_jsx(TextField, { label: "Name of the head", value: wanted.head, placeholder: "failures", spellcheck: false, autocomplete: "off", required: true, error: nameWrong ? "Small letters, digits, _ and -; the first is a letter or a digit." : undefined, hint: "an existing one gets a new version", onInput: (head) => set({ head }) }), _jsx(TextField, { label: "Licence of the data", value: wanted.licence, placeholder: "unknown", hint: "shown in the head's report", onInput: (licence) => set({ licence }) }), wanted.source === "collection" ? (_jsxs(_Fragment, { children: [_jsx(Select, { label: "Collection", value: collection, choices: collections.map((one) => ({ value: one.name, label: one.name })), onChange: (name) => set({ collection: name }) }), _jsx(TextField, { label: "Metadata key with the label", value: wanted.labelKey, placeholder: "kind", spellcheck: false, required: true, hint: "stored vectors are read; no text is decoded", onInput: (labelKey) => set({ labelKey }) })] })) : (_jsxs(_Fragment, { children: [_jsx(Field, { label: "Rows, as CSV or JSON lines", hint: file ? bytes(file.size) : "at most 64 MiB", children: (attributes) => (_jsx("input", { ...attributes, class: "input", type: "file", accept: ".csv,.jsonl,.ndjson", onChange: (event) => setFile(event.currentTarget.files?.[0] ?? null) })) }), _jsxs("div", { class: "pair", children: [_jsx(TextField, { label: "Text column", value: wanted.textColumn, onInput: (textColumn) => set({ textColumn }) }), _jsx(TextField, { label: "Label column", value: wanted.labelColumn, onInput: (labelColumn) => set({ labelColumn }) })] })] })), _jsx(TextField, { label: "Share of the canary, %", type: "number", min: "0", max: "100", step: "1", value: wanted.share, hint: "part of the jobs that try the new version", onInput: (share) => set({ share }) })] }), _jsx(Switch, { label: "The labels may differ from those of the stable version", checked: wanted.newLabels, onChange: (newLabels) => set({ newLabels }) }), _jsx("div", { class: "actions", children: _jsx(Button, { kind: "primary", type: "submit", icon: "play", busy: busy, disabled: !ready, children: "Start the training" }) })] }) }));
}
function fromAddress() {
    const { query } = place.value;
    return { head: query.get("head") ?? "", collection: query.get("collection") ?? "" };
}
function requestOf(wanted, file) {
    const more = {
        share: Math.min(1, Math.max(0, Number(wanted.share) / 100)),
        ...(wanted.newLabels ? { new_labels: true } : {}),
        ...(wanted.licence ? { licence: wanted.licence } : {}),
    };
    if (wanted.source === "collection") {
        const source = { collection: wanted.collection, label_key: wanted.labelKey };
        return { method: "POST", path: "/v1/train", body: { head: wanted.head, source, ...more } };
    }
    const type = file?.name.endsWith(".csv") ? "text/csv" : "application/x-ndjson";
    const query = { head: wanted.head, text_column: wanted.textColumn, label_column: wanted.labelColumn, settings: JSON.stringify(more) };
    return { method: "POST", path: "/v1/train", query, data: { content: file ?? "", type } };
}
function pythonOf(wanted, collection) {
    const about = wanted.source === "collection"
        ? `collection="${collection}", label_key="${wanted.labelKey || "kind"}"`
        : 'file=open("rows.csv", "rb").read(), media_type="text/csv"';
    return `from verso_client import Training\n\njob = client.train(Training("${wanted.head || "failures"}", ${about}))\nprint(client.wait(job.id).status)`;
}
function TrainingProgress({ jobId }) {
    const followed = useJob(jobId);
    const job = useRequest({ method: "GET", path: `/v1/jobs/${jobId}` }, { waitS: 0, ...(followed.ended ? {} : { everyS: 3 }) });
    const status = followed.state?.status ?? job.data?.status;
    const over = status !== undefined && isOver(status);
    const [result] = job.data?.results ?? [];
    if (over && job.data && !isOver(job.data.status) && !job.loading)
        job.reload();
    if (job.problem && !job.data)
        return _jsx(ErrorState, { problem: job.problem, retry: job.reload });
    const fault = job.data?.error ?? (result && "error" in result ? result.error : undefined);
    return (_jsxs(_Fragment, { children: [_jsxs(Card, { title: "The training", note: _jsx("code", { children: jobId }), actions: over ? (_jsx(Button, { small: true, icon: "plus", onClick: () => setQuery({ job: null }), children: "Another training" })) : (_jsx(Button, { small: true, to: addressOf(`jobs/${jobId}`), children: "The job" })), children: [_jsx(Stages, { followed: followed, status: status ?? "queued" }), fault && _jsxs(Notice, { tone: "bad", children: [fault.detail, " (", fault.code, ")"] })] }), _jsx(History, { progress: followed.progress }), result && !("error" in result) && _jsx(TrainedCard, { result: result })] }));
}
function Stages({ followed, status }) {
    const latest = followed.progress.at(-1);
    const share = status === "succeeded" ? 1 : (latest?.share ?? 0);
    return (_jsxs("div", { class: "stack", "aria-live": "polite", children: [_jsxs("p", { class: "stage", children: [_jsx(Badge, { tone: status === "succeeded" ? "good" : status === "failed" || status === "dead" ? "bad" : "accent", children: status }), " ", status === "queued" ? "waits for the trainer" : (latest?.stage ?? ""), _jsx("b", { children: percent(share) })] }), _jsx(Meter, { label: "Training", value: share, tone: status === "succeeded" ? "good" : "accent", text: percent(share) })] }));
}
/** The figures that the training told of, over the share of its work. */
function History({ progress }) {
    const told = progress.filter((one) => Object.keys(one.metrics ?? {}).length > 0 && one.share !== undefined);
    const names = [...new Set(told.flatMap((one) => Object.keys(one.metrics ?? {})))].filter((name) => /loss|error/.test(name)).slice(0, 4);
    if (told.length < 2 || names.length === 0)
        return null;
    const points = [...new Map(told.map((one) => [one.share ?? 0, one])).values()].sort((a, b) => (a.share ?? 0) - (b.share ?? 0));
    return (_jsx(Card, { title: "Loss", note: "it begins again for each penalty that is tried", children: _jsx(Chart, { label: "The loss over the training", x: points.map((one) => (one.share ?? 0) * 100), xLabel: "part of the work, %", yLabel: "loss", height: 220, format: (value) => value.toFixed(2), series: names.map((name, index) => ({
                label: name.replaceAll("_", " "),
                colour: (index + 1),
                values: points.map((one) => one.metrics?.[name] ?? null),
            })) }) }));
}
function TrainedCard({ result }) {
    const accuracy = result.metrics["accuracy"];
    return (_jsx(Card, { title: "It is a canary now", actions: _jsx(Button, { kind: "primary", small: true, to: addressOf(`models/heads/${result.head}`, { channel: "canary" }), children: "See its report" }), children: _jsx(Facts, { facts: [
                ["Head", _jsx(Link, { to: addressOf(`models/heads/${result.head}`), children: result.head }, "h")],
                ["Version", _jsx("code", { children: shortVersion(result.version) }, "v")],
                ["Labels", count(result.labels.length)],
                ["Rows", Object.entries(result.rows).map(([split, rows]) => `${count(Number(rows))} ${split}`).join(", ")],
                ["Accuracy", accuracy === undefined ? "–" : percent(accuracy, 1)],
                ...(result.dropped_labels?.length ? [["Dropped labels", result.dropped_labels.join(", ")]] : []),
            ] }) }));
}
