import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Whether work gets done, what waits, and whether what is stored still reads back. */
import { useState } from "preact/hooks";
import { call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Icon } from "../../components/Icon.js";
import { Badge, Card, Stat, Stats } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { ago, bytes, count, duration, percent, plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { Link, addressOf } from "../../router.js";
import { may } from "../../session.js";
import { AuditCard } from "./AuditCard.js";
const STATUS = { method: "GET", path: "/v1/status" };
const SCRUB = { method: "GET", path: "/v1/scrub" };
const ASK = { method: "POST", path: "/v1/scrub" };
const EVERY_S = 3;
export function HealthView() {
    const status = useRequest(STATUS, { everyS: EVERY_S });
    const found = status.data;
    if (status.problem && !found)
        return _jsx(Card, { children: _jsx(ErrorState, { problem: status.problem, retry: status.reload }) });
    if (!found)
        return _jsx(Card, { children: _jsx(Loading, { lines: 6 }) });
    return (_jsxs(_Fragment, { children: [_jsx(ReadyCard, { status: found }), _jsxs("div", { class: "columns", children: [_jsx(QueuesCard, { queues: found.queues }), _jsx(BacklogCard, { status: found })] }), _jsx(AuditCard, { scrubbed: found.scrubbed }), _jsxs("div", { class: "columns", children: [may("admin") ? _jsx(ScrubCard, {}) : _jsx(ScrubTotals, { status: found }), _jsx(DisksCard, { status: found })] })] }));
}
function ReadyCard({ status }) {
    const age = (value) => (value === null ? "never" : duration(value));
    return (_jsx(Card, { children: _jsxs("div", { class: "ready", children: [_jsxs("div", { class: status.ready ? "ready-state good" : "ready-state bad", role: "status", children: [_jsx("span", { class: "ready-icon", children: _jsx(Icon, { name: status.ready ? "check" : "warning", size: 22 }) }), _jsxs("div", { children: [_jsx("p", { class: "ready-word", children: status.ready ? "Ready" : "Not ready" }), _jsx("p", { class: "note", children: status.ready ? "texts are taken in, found and read back" : status.reason })] })] }), _jsxs(Stats, { children: [_jsx(Stat, { label: "Since the last embedding", value: age(status.last_embed_age_s) }), _jsx(Stat, { label: "Since a worker's heartbeat", value: age(status.worker_beat_age_s) }), _jsx(Stat, { label: "Workers", value: count(status.workers.length), note: status.workers.length === 0 ? "none has been heard of" : undefined }), _jsx(Stat, { label: "Trainer", value: status.trainer_beat_age_s === null ? "none" : status.trainer_beat_age_s > 30 ? "gone" : "runs", note: status.trainer_beat_age_s === null ? undefined : `heard of ${duration(status.trainer_beat_age_s)} ago` })] }), _jsx(CodeSamples, { samples: [{ title: "The state of the platform", request: STATUS, python: "print(client.status())" }] })] }) }));
}
const PURPOSE = {
    interactive: "searches, answers, reads",
    bulk: "ingest, maps, groups",
    scrub: "verify, read again",
    fit: "codecs fitted to texts",
    train: "heads",
};
function QueuesCard({ queues }) {
    const most = Math.max(1, ...queues.map((queue) => queue.queued + queue.running));
    return (_jsx(Card, { title: "Queues", note: "slices of all callers", flush: true, children: _jsx(Table, { caption: "Queues", rows: queues, rowKey: (queue) => queue.queue, columns: [
                {
                    title: "Queue",
                    cell: (queue) => (_jsxs(_Fragment, { children: [queue.queue, " ", _jsx("span", { class: "queue-purpose note", children: PURPOSE[queue.queue] })] })),
                },
                { title: "Due", numeric: true, cell: (queue) => count(queue.queued) },
                { title: "Later", numeric: true, minor: true, cell: (queue) => count(queue.delayed) },
                { title: "Running", numeric: true, cell: (queue) => count(queue.running) },
                {
                    title: "Oldest",
                    numeric: true,
                    cell: (queue) => queue.queued === 0 ? _jsx("span", { class: "note", children: "\u2013" }) : _jsx("span", { class: queue.oldest_s > 60 ? "late" : undefined, children: duration(queue.oldest_s) }),
                },
                {
                    title: "Load",
                    minor: true,
                    width: "90px",
                    cell: (queue) => (_jsx("span", { class: "queue-meter", children: _jsx(Meter, { label: `${queue.queue}: due and running`, value: queue.queued + queue.running, max: most, text: count(queue.queued + queue.running) }) })),
                },
            ] }) }));
}
function BacklogCard({ status }) {
    const { backlog } = status;
    return (_jsx(Card, { title: "Backlog", note: "what waits outside the queues", children: _jsxs("div", { class: "stack", children: [backlog.read_only && (_jsxs("p", { class: "read-only", children: [_jsx(Badge, { tone: "bad", children: "read-only" }), " The ledger is older than what it has acknowledged: nothing is accepted."] })), _jsxs(Stats, { children: [_jsx(Stat, { label: "Dead letters", value: backlog.dead > 0 ? _jsx(Link, { to: addressOf("jobs", { status: "dead" }), children: count(backlog.dead) }) : "0", tone: backlog.dead > 0 ? "bad" : "neutral", note: backlog.dead > 0 ? "slices that failed too often" : "nothing failed for good" }), _jsx(Stat, { label: "To verify", value: count(backlog.unverified), note: backlog.unverified > 0 ? `${bytes(backlog.bytes_unverified)} of text kept until then` : "all texts were read back" }), _jsx(Stat, { label: "Webhooks", value: count(backlog.webhooks), note: "messages to send" }), _jsx(Stat, { label: "Orphans", value: count(backlog.orphans), tone: backlog.orphans > 0 ? "warning" : "neutral", note: "points without an entry" })] })] }) }));
}
function ScrubCard() {
    const answer = useRequest(SCRUB, { everyS: EVERY_S });
    const [busy, setBusy] = useState(false);
    const scrub = answer.data;
    const ask = async () => {
        setBusy(true);
        try {
            await call(ASK, { detached: true });
            toast("A pass over all records begins.");
            answer.reload();
        }
        catch (error) {
            toastProblem(error);
        }
        setBusy(false);
    };
    const running = scrub?.running ?? false;
    return (_jsx(Card, { title: "Scrub", note: "reads every stored record again", actions: _jsxs("span", { class: "actions", children: [_jsx(CodeSamples, { samples: [
                        { title: "The newest pass", request: SCRUB, python: "print(client.scrub())" },
                        { title: "Begin a pass now", request: ASK, python: "client.scrub(now=True)" },
                    ] }), _jsx(Button, { small: true, busy: busy, disabled: running || (scrub?.asked ?? false), onClick: () => void ask(), children: "Read all now" })] }), children: answer.problem && !scrub ? (_jsx(ErrorState, { problem: answer.problem, retry: answer.reload })) : !scrub ? (_jsx(Loading, { lines: 4 })) : (_jsx(ScrubBody, { scrub: scrub })) }));
}
function ScrubBody({ scrub }) {
    if (scrub.number === 0 && !scrub.running && !scrub.asked) {
        return (_jsx(Empty, { icon: "exact", title: "No pass has begun yet", children: _jsx("p", { children: "One begins by itself, and goes on in quiet moments." }) }));
    }
    const recent = scrub.state === "recent" ? scrub.recent : null;
    const share = recent ? recent.progress : scrub.running ? scrub.progress : 1;
    return (_jsxs("div", { class: "stack", children: [_jsxs("div", { children: [_jsxs("p", { class: "stage", children: [_jsx(Badge, { tone: scrub.running ? "accent" : scrub.damaged > 0 ? "bad" : "good", children: recent ? "recent documents first" : scrub.running ? `pass ${scrub.number} runs` : scrub.asked ? "requested" : `pass ${scrub.number} ended` }), _jsx("span", { class: "note", children: scrub.running ? `since ${ago(scrub.started)}` : ago(scrub.ended) }), _jsx("b", { children: percent(share) })] }), _jsx(Meter, { label: "Progress of the pass", value: share, tone: scrub.damaged > 0 ? "bad" : scrub.running ? "accent" : "good", text: percent(share) })] }), _jsxs(Stats, { children: [_jsx(Stat, { label: "Read", value: count(scrub.documents), note: bytes(scrub.bytes) }), _jsx(Stat, { label: "Sound", value: count(scrub.sound), tone: scrub.documents > 0 && scrub.sound === scrub.documents ? "good" : "neutral" }), _jsx(Stat, { label: "Repaired", value: count(scrub.repaired), tone: scrub.repaired > 0 ? "warning" : "neutral" }), _jsx(Stat, { label: "Damaged", value: count(scrub.damaged), tone: scrub.damaged > 0 ? "bad" : "neutral" })] }), (scrub.damaged_documents?.length ?? 0) > 0 && (_jsx(Table, { caption: "Damaged documents", rows: scrub.damaged_documents ?? [], rowKey: (one) => `${one.collection}/${one.id}`, to: (one) => addressOf("documents", { collection: one.collection, id: one.id }), columns: [
                    { title: "Damaged document", cell: (one) => one.id },
                    { title: "Collection", cell: (one) => one.collection },
                ] }))] }));
}
/** What a key without the scope `admin` sees of the scrub. */
function ScrubTotals({ status }) {
    const { sound, repaired, damaged } = status.scrubbed;
    return (_jsxs(Card, { title: "Scrub", note: "of all passes so far", children: [_jsxs(Stats, { children: [_jsx(Stat, { label: "Sound", value: count(sound) }), _jsx(Stat, { label: "Repaired", value: count(repaired) }), _jsx(Stat, { label: "Damaged", value: count(damaged), tone: damaged > 0 ? "bad" : "neutral" })] }), _jsx("p", { class: "note", children: "Its newest pass, and which documents are damaged, are for keys with the scope admin." })] }));
}
function DisksCard({ status }) {
    return (_jsx(Card, { title: "Disks", note: "of the workers' data folders", children: status.workers.length === 0 ? (_jsx(Empty, { icon: "warning", title: "No worker has said what room it has" })) : (_jsx("ul", { class: "disks", children: status.workers.map((worker) => {
                const disk = worker.disk;
                const used = disk ? disk.bytes_total - disk.bytes_free : 0;
                return (_jsxs("li", { children: [_jsxs("p", { class: "disk-head", children: [_jsx("code", { class: "wrap", children: worker.worker }), worker.disk_full && _jsx(Badge, { tone: "bad", children: "full" }), _jsx("span", { class: "note", children: plural(worker.engines, "engine") })] }), disk ? (_jsxs(_Fragment, { children: [_jsx(Meter, { label: `Disk of ${worker.worker}`, value: used, max: disk.bytes_total, mark: disk.bytes_total - disk.bytes_floor, tone: worker.disk_full ? "bad" : disk.bytes_free < 4 * disk.bytes_floor ? "warning" : "accent", text: `${bytes(disk.bytes_free)} free of ${bytes(disk.bytes_total)}` }), _jsxs("p", { class: "note", children: [bytes(disk.bytes_free), " free of ", bytes(disk.bytes_total), "; writes stop below ", bytes(disk.bytes_floor)] })] })) : (_jsx("p", { class: "note", children: "says nothing of its disk" }))] }, worker.worker));
            }) })) }));
}
