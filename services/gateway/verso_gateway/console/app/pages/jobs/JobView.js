import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** One job: its state as it changes, what failed of it, and what can be done about it. */
import { useState } from "preact/hooks";
import { ApiError, call, segment } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples, python } from "../../components/CodeSamples.js";
import { CopyButton } from "../../components/CopyButton.js";
import { Dialog } from "../../components/Dialog.js";
import { Card, Facts } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { ErrorState, Loading, Notice } from "../../components/States.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { count, duration, plural, time } from "../../format.js";
import { useRequest } from "../../request.js";
import { Failures } from "./Failures.js";
import { Items, StatusBadge } from "./JobsView.js";
import { useProgress } from "./live.js";
import { setState } from "./state.js";
import { hasEnded, kindText } from "./types.js";
export function JobView({ id, known, onChanged }) {
    const path = `/v1/jobs/${segment(id)}`;
    const answer = useRequest({ method: "GET", path, query: { limit: 0 } }, { waitS: 0, ...(known === undefined ? { everyS: 3 } : {}) });
    const job = answer.data === undefined ? undefined : (known ?? answer.data);
    const progress = useProgress(job !== undefined && !hasEnded(job.status) ? id : null);
    return (_jsxs("section", { class: "job-view", "aria-label": "Job", children: [_jsxs(Card, { title: job === undefined ? "Job" : sentence(kindText(job.kind)), note: job && _jsx(StatusBadge, { status: job.status }), actions: _jsxs(_Fragment, { children: [_jsx(CodeSamples, { samples: [
                                { title: "Describe the job", request: { method: "GET", path }, python: `print(client.job(${python(id)}))` },
                                { title: "Follow it", request: { method: "GET", path: `${path}/events` }, python: `for event in client.events(${python(id)}):\n    print(event)` },
                                { title: "What failed", request: { method: "GET", path: `${path}/failures` }, python: `for item in client.results(${python(id)}):\n    if item.get("error"):\n        print(item)` },
                            ] }), _jsx(Button, { kind: "quiet", small: true, icon: "close", label: "Close", onClick: () => setState({ job: null }) })] }), children: [answer.problem && answer.problem.code !== "job_unknown" && _jsx(ErrorState, { problem: answer.problem, retry: answer.reload }), answer.problem?.code === "job_unknown" && (_jsx(Notice, { children: "This job is not known any more. Jobs and their results are kept for a day after their end, searches for a minute." })), !job && !answer.problem && _jsx(Loading, { lines: 6, label: "Reading the job" }), job && !answer.problem && (_jsxs("div", { class: "job-body", children: [_jsx(Items, { job: job }), progress?.progress && _jsx(Reported, { progress: progress }), job.error && _jsx(Fault, { job: job }), _jsx(Actions, { job: job, path: path, onChanged: () => [answer.reload(), onChanged()] }), _jsx(Facts, { facts: factsOf(job) })] }))] }), job && job.failed > 0 && _jsx(Failures, { path: path, failed: job.failed }, `${job.status} ${job.failed}`)] }));
}
/** What the worker says of how far it is, such as an epoch of a training. */
function Reported({ progress }) {
    const { stage, share, ...figures } = progress.progress ?? {};
    const shown = Object.entries(figures).filter(([, value]) => typeof value === "number" || typeof value === "string");
    return (_jsxs("div", { class: "job-reported", "aria-live": "polite", children: [_jsxs("span", { children: [typeof stage === "string" ? stage : "under way", typeof share === "number" && _jsxs("b", { children: [" ", Math.round(share * 100), " %"] })] }), typeof share === "number" && _jsx(Meter, { label: "Share of the work done", value: share }), shown.length > 0 && _jsx("span", { class: "note", children: shown.map(([name, value]) => `${name} ${typeof value === "number" ? Number(value.toPrecision(4)) : String(value)}`).join(" · ") })] }));
}
function Fault({ job }) {
    const { error } = job;
    if (error === null)
        return null;
    return (_jsxs(Notice, { tone: job.status === "cancelled" || job.status === "expired" ? "warning" : "bad", children: [error.detail, " ", _jsx("a", { href: `/docs/errors/${error.code}`, target: "_blank", rel: "noreferrer", children: error.code })] }));
}
function Actions({ job, path, onChanged }) {
    const [asking, setAsking] = useState(false);
    const [busy, setBusy] = useState(false);
    const act = async (method, to, done) => {
        setBusy(true);
        try {
            await call({ method, path: to }, { detached: true });
            toast(done);
            onChanged();
        }
        catch (error) {
            if (error instanceof ApiError || error instanceof Error)
                toastProblem(error);
        }
        setBusy(false);
        setAsking(false);
    };
    if (hasEnded(job.status) && job.status !== "dead")
        return null;
    return (_jsxs("div", { class: "actions", children: [job.status === "dead" ? (_jsx(Button, { kind: "primary", icon: "refresh", busy: busy, onClick: () => void act("POST", `${path}/replay`, "The job has new attempts"), children: "Replay" })) : (_jsx(Button, { icon: "stop", busy: busy, onClick: () => setAsking(true), children: "Cancel" })), _jsx(Dialog, { title: "Cancel this job?", open: asking, onClose: () => setAsking(false), actions: _jsxs(_Fragment, { children: [_jsx(Button, { onClick: () => setAsking(false), children: "Let it run" }), _jsx(Button, { kind: "danger", busy: busy, onClick: () => void act("DELETE", path, "The job is cancelled"), children: "Cancel the job" })] }), children: _jsxs("p", { children: ["Work that has not started never will. What is done already stays: ", count(job.ok), " of ", plural(job.items, "item"), "."] }) })] }));
}
function factsOf(job) {
    const seconds = (from, to) => from === null || to === null ? "–" : duration(Math.max(0, new Date(to).getTime() - new Date(from).getTime()) / 1000);
    const facts = [
        [
            "id",
            _jsxs("span", { class: "job-name", children: [_jsx("code", { children: job.id }), _jsx(CopyButton, { text: job.id, label: "Copy the id" })] }),
        ],
        ["accepted", time(job.created)],
        ["waited", seconds(job.created, job.started)],
        ["worked", seconds(job.started, job.finished)],
        ["parts", `${count(job.slices_done)} of ${count(job.slices)} done`],
        ["attempts", count(job.attempts)],
        ["urgency", `${job.urgency} (0 first, 7 last)`],
    ];
    if (job.deadline !== null)
        facts.push(["deadline", time(job.deadline)]);
    return facts;
}
function sentence(text) {
    return text.charAt(0).toUpperCase() + text.slice(1);
}
