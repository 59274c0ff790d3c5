import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** The list of jobs, the newest first, as it changes. */
import { useEffect, useState } from "preact/hooks";
import { Button } from "../../components/Button.js";
import { Segmented, Select, Switch } from "../../components/Field.js";
import { Badge, Card } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { ago, count, duration, plural, time } from "../../format.js";
import { addressOf } from "../../router.js";
import { addressOfJob, setState } from "./state.js";
import { CHANGES, READS, hasEnded, kindText } from "./types.js";
export function JobsView({ state, answer }) {
    const { jobs, problem, loading } = answer;
    useTicks(5000);
    return (_jsxs(_Fragment, { children: [_jsx(Filters, { state: state }), _jsxs(Card, { flush: true, children: [problem && _jsx(ErrorState, { problem: problem, retry: answer.reload }), !problem && jobs === undefined && (_jsx("div", { class: "jobs-wait", children: _jsx(Loading, { lines: 8, label: "Reading jobs" }) })), !problem && jobs?.length === 0 && !answer.hasMore && _jsx(NoJobs, { state: state }), jobs !== undefined && jobs.length > 0 && (_jsx(Table, { caption: plural(jobs.length, "job"), columns: COLUMNS, rows: jobs, rowKey: (job) => job.id, to: (job) => addressOfJob(job.id), selected: (job) => job.id === state.job })), answer.hasMore && (_jsx("div", { class: "jobs-more", children: _jsx(Button, { busy: loading, onClick: answer.more, children: "Older jobs" }) }))] })] }));
}
/** Draw again every so often: how long ago something was changes by itself. */
function useTicks(everyMs) {
    const [, draw] = useState(0);
    useEffect(() => {
        const timer = setInterval(() => draw((before) => before + 1), everyMs);
        return () => clearInterval(timer);
    }, [everyMs]);
}
function Filters({ state }) {
    const kinds = [...CHANGES, ...(state.reads || READS.some((one) => one === state.kind) ? READS : [])];
    const groups = [
        { value: "all", label: "All" },
        { value: "active", label: "Active" },
        { value: "succeeded", label: "Succeeded" },
        { value: "failed", label: "Failed" },
    ];
    return (_jsxs("div", { class: "jobs-filters", role: "group", "aria-label": "Which jobs are listed", children: [_jsx(Segmented, { label: "States", value: state.group === "dead" ? "failed" : state.group, choices: groups, onChange: (group) => setState({ status: group === "all" ? null : group, job: null }) }), _jsx(Select, { label: "Kind", bare: true, value: state.kind, choices: [{ value: "", label: "Every kind" }, ...kinds.map((kind) => ({ value: kind, label: kindText(kind) }))], onChange: (kind) => setState({ kind, job: null }) }), _jsx(Switch, { label: "Searches too", checked: state.reads, onChange: (reads) => setState({ reads, kind: null, job: null }) })] }));
}
function NoJobs({ state }) {
    if (state.group !== "all" || state.kind !== "") {
        return (_jsxs(Empty, { icon: "check", title: "No such jobs", children: [_jsx("p", { children: "No job of yours is in such a state now." }), _jsx(Button, { onClick: () => setState({ status: null, kind: null }), children: "All jobs" })] }));
    }
    return (_jsxs(Empty, { icon: "jobs", title: "No jobs yet", children: [_jsx("p", { children: "Whatever you ingest, delete, train or migrate is shown here, for a day after its end. Searches are listed only if you ask for them." }), _jsx(Button, { to: addressOf("collections"), children: "Collections" })] }));
}
const COLUMNS = [
    {
        title: "Job",
        cell: (job) => (_jsxs("span", { class: "job-cell", children: [kindText(job.kind), _jsx("span", { class: "job-id", children: job.id.slice(0, 8) })] })),
    },
    { title: "State", cell: (job) => _jsx(StatusBadge, { status: job.status }) },
    { title: "Items", width: "32%", cell: (job) => _jsx(Items, { job: job }) },
    { title: "Took", numeric: true, minor: true, cell: (job) => tookText(job) },
    {
        title: "Accepted",
        numeric: true,
        minor: true,
        cell: (job) => _jsx("span", { title: time(job.created), children: ago(job.created) }),
    },
];
const TONES = {
    queued: "neutral",
    running: "accent",
    succeeded: "good",
    failed: "bad",
    cancelled: "warning",
    expired: "warning",
    dead: "bad",
};
export function StatusBadge({ status }) {
    return (_jsxs(Badge, { tone: TONES[status], children: [status === "running" && _jsx("span", { class: "pulse", "aria-hidden": "true" }), status] }));
}
/** How many items are done and failed, as a bar and in figures. */
export function Items({ job }) {
    const done = job.ok + job.failed;
    const text = hasEnded(job.status) ? plural(job.items, "item") : `${count(done)} of ${plural(job.items, "item")}`;
    const share = (items) => `${(items / Math.max(1, job.items)) * 100}%`;
    return (_jsxs("div", { class: "job-items", children: [(!hasEnded(job.status) || job.failed > 0) && (_jsxs("span", { class: "meter", role: "meter", "aria-label": "Items done", "aria-valuenow": done, "aria-valuemin": 0, "aria-valuemax": Math.max(1, job.items), "aria-valuetext": text, children: [_jsx("span", { class: hasEnded(job.status) ? "job-part good" : "job-part", style: { width: share(job.ok) } }), _jsx("span", { class: "job-part bad", style: { left: share(job.ok), width: job.failed > 0 ? `max(3px, ${share(job.failed)})` : "0" } })] })), _jsxs("span", { children: [text, job.failed > 0 && _jsxs("b", { class: "job-failed", children: [", ", count(job.failed), " failed"] })] })] }));
}
function tookText(job) {
    if (job.started === null)
        return job.status === "queued" ? "waits" : "–";
    const end = job.finished === null ? Date.now() : new Date(job.finished).getTime();
    return duration(Math.max(0, end - new Date(job.started).getTime()) / 1000);
}
