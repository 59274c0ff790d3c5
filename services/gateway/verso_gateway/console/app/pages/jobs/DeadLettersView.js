import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Parts of jobs that crashed or failed too often: they wait until somebody replays them. */
import { useState } from "preact/hooks";
import { call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Dialog } from "../../components/Dialog.js";
import { Select } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { ago, bytes, count, plural, time } from "../../format.js";
import { addressOfJob, setState } from "./state.js";
import { kindText } from "./types.js";
export function DeadLettersView({ state, answer }) {
    const letters = answer.data?.dead_letters ?? [];
    const kinds = [...new Set(letters.map((letter) => letter.kind))];
    const codes = [...new Set(letters.map((letter) => letter.error.code))];
    const shown = letters.filter((letter) => (state.kind === "" || letter.kind === state.kind) && (state.code === "" || letter.error.code === state.code));
    return (_jsxs(_Fragment, { children: [_jsxs("div", { class: "jobs-filters", role: "group", "aria-label": "Which dead letters are listed", children: [_jsx(Select, { label: "Kind", bare: true, value: state.kind, choices: [{ value: "", label: "Every kind" }, ...withOwn(kinds, state.kind).map((kind) => ({ value: kind, label: kindText(kind) }))], onChange: (kind) => setState({ kind }) }), _jsx(Select, { label: "Error", bare: true, value: state.code, choices: [{ value: "", label: "Every error" }, ...withOwn(codes, state.code).map((code) => ({ value: code, label: code }))], onChange: (code) => setState({ code }) }), shown.length > 0 && _jsx(ReplayAll, { state: state, jobs: new Set(shown.map((letter) => letter.job_id)).size, onDone: answer.reload })] }), _jsxs(Card, { flush: true, children: [answer.problem && _jsx(ErrorState, { problem: answer.problem, retry: answer.reload }), !answer.data && !answer.problem && (_jsx("div", { class: "jobs-wait", children: _jsx(Loading, { lines: 5, label: "Reading dead letters" }) })), answer.data && shown.length === 0 && (_jsx(Empty, { icon: "check", title: "No dead letters", children: _jsx("p", { children: "Nothing of yours failed so often that it waits for somebody to look at it." }) })), shown.length > 0 && (_jsx(Table, { caption: plural(shown.length, "dead letter"), columns: COLUMNS, rows: shown, rowKey: (letter) => `${letter.job_id}.${letter.slice}`, to: (letter) => addressOfJob(letter.job_id), selected: (letter) => letter.job_id === state.job }))] })] }));
}
function withOwn(names, own) {
    return own === "" || names.includes(own) ? [...names] : [...names, own];
}
const COLUMNS = [
    {
        title: "Job",
        cell: (letter) => (_jsxs("span", { class: "job-cell", children: [kindText(letter.kind), _jsx("span", { class: "job-id", children: letter.job_id.slice(0, 8) })] })),
    },
    {
        title: "Why",
        cell: (letter) => (_jsxs("span", { class: "letter-why", children: [letter.error.detail, _jsx("a", { href: `/docs/errors/${letter.error.code}`, target: "_blank", rel: "noreferrer", children: letter.error.code })] })),
    },
    { title: "Part", numeric: true, minor: true, cell: (letter) => count(letter.slice + 1) },
    { title: "Held", numeric: true, cell: (letter) => _jsx("span", { title: plural(letter.items, "item"), children: `${plural(letter.items, "item")}, ${bytes(letter.bytes)}` }) },
    { title: "Tried", numeric: true, minor: true, cell: (letter) => [letter.errors > 0 ? plural(letter.errors, "error") : "", letter.crashes > 0 ? plural(letter.crashes, "crash", "crashes") : ""].filter(Boolean).join(", ") || "once" },
    { title: "Since", numeric: true, minor: true, cell: (letter) => _jsx("span", { title: time(letter.died), children: ago(letter.died) }) },
];
function ReplayAll({ state, jobs, onDone }) {
    const [asking, setAsking] = useState(false);
    const [busy, setBusy] = useState(false);
    const replay = async () => {
        setBusy(true);
        try {
            const query = { kind: state.kind || null, code: state.code || null };
            const answer = await call({ method: "POST", path: "/v1/dead-letters/replay", query });
            toast(`${plural(answer.jobs.length, "job")} ${answer.jobs.length === 1 ? "has" : "have"} new attempts${answer.more ? "; there are more" : ""}`);
            onDone();
        }
        catch (error) {
            toastProblem(error);
        }
        setBusy(false);
        setAsking(false);
    };
    return (_jsxs(_Fragment, { children: [_jsxs(Button, { small: true, icon: "refresh", onClick: () => setAsking(true), children: ["Replay ", jobs === 1 ? "it" : "them"] }), _jsx(Dialog, { title: "Replay dead letters?", open: asking, onClose: () => setAsking(false), actions: _jsxs(_Fragment, { children: [_jsx(Button, { onClick: () => setAsking(false), children: "Not now" }), _jsxs(Button, { kind: "primary", busy: busy, onClick: () => void replay(), children: ["Replay ", plural(jobs, "job")] })] }), children: _jsx("p", { children: "Each gets a new budget of attempts, with the texts that the platform has kept. What fails again comes back here." }) })] }));
}
