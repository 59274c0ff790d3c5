import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Badge, Card, Facts, Page } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { ago, count, percent, plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf } from "../../router.js";
import { may } from "../../session.js";
import { ReleaseButtons } from "./Release.js";
import { HEADS, REGISTRY, promotion } from "./requests.js";
import { headline, shortVersion, taskOf, trialOf } from "./types.js";
const EVERY_S = 5;
export function ModelsOverview() {
    const registry = useRequest(REGISTRY, { everyS: EVERY_S });
    const heads = useRequest(HEADS, { everyS: EVERY_S });
    const reload = () => {
        registry.reload();
        heads.reload();
    };
    return (_jsx(Page, { title: "Models", about: "An artifact makes vectors and patches; heads classify, answer and score. A new version is a canary first.", actions: _jsxs(_Fragment, { children: [_jsx(CodeSamples, { samples: [
                        { title: "What the channels serve", request: REGISTRY, python: "state = client.registry()\nprint(state.artifact, state.heads)" },
                        { title: "The heads", request: HEADS, python: "for head in client.heads():\n    print(head.name, head.stable)" },
                        { title: "Promote the canary of a head", request: promotion("intents"), python: 'client.promote("intents")' },
                    ] }), may("admin") && (_jsx(Button, { kind: "primary", icon: "plus", to: addressOf("models/train"), children: "Train a head" }))] }), children: content() }));
    function content() {
        const state = registry.data;
        if (registry.problem && !state)
            return _jsx(ErrorState, { problem: registry.problem, retry: registry.reload });
        if (!state)
            return _jsx(Card, { children: _jsx(Loading, { lines: 6 }) });
        return (_jsxs(_Fragment, { children: [_jsx(ArtifactCard, { registry: state, onChanged: reload }), _jsx(Card, { title: "Heads", note: heads.data ? plural(heads.data.heads.length, "head") : undefined, flush: true, children: heads.problem && !heads.data ? (_jsx(ErrorState, { problem: heads.problem, retry: heads.reload })) : !heads.data ? (_jsx("div", { class: "card-body", children: _jsx(Loading, { lines: 4 }) })) : (_jsx(HeadsTable, { heads: heads.data.heads, registry: state, onChanged: reload })) }), _jsx(WorkersCard, { registry: state })] }));
    }
}
function ArtifactCard({ registry, onChanged }) {
    const { artifact } = registry;
    const trial = trialOf(registry.workers, null);
    return (_jsx(Card, { title: "Artifact", note: "encoder, decoder and codecs of new records", actions: _jsx(ReleaseButtons, { head: null, rollout: artifact, onChanged: onChanged }), children: _jsxs("div", { class: "channels", children: [_jsx(ChannelBox, { name: "stable", version: artifact.stable, share: artifact.canary ? 1 - artifact.share : 1 }), _jsx(ChannelBox, { name: "canary", version: artifact.canary, share: artifact.canary ? artifact.share : 0, note: trial ? `${count(trial.passed)} slices passed, ${count(trial.failed)} failed${compared(artifact)}` : undefined }), _jsx("div", { class: "channel", children: _jsx(Facts, { facts: history(artifact) }) })] }) }));
}
/** One channel: which version it serves, and how many of the jobs that gets. */
export function ChannelBox(props) {
    const { name, version, note } = props;
    const share = version ? props.share : 0;
    return (_jsxs("div", { class: version ? "channel" : "channel none", children: [_jsx("p", { class: "channel-name", children: _jsx(Badge, { tone: name === "canary" && version ? "warning" : version ? "good" : "neutral", children: name }) }), _jsx("p", { class: "channel-version", children: version ? _jsx("code", { children: version }) : "none" }), _jsx(Meter, { label: `Share of the jobs: ${name}`, value: share, tone: name === "canary" ? "warning" : "good", text: percent(share) }), _jsxs("p", { class: "note", children: [version ? `${percent(share)} of the jobs` : name === "canary" ? "no version on trial" : "no version yet", note && ` · ${note}`] })] }));
}
/** Say how a canary compares with the stable version; nothing before the first pair. */
export function compared({ comparison }) {
    if (!comparison)
        return "";
    const { agreed, differed, p95_ms_canary, p95_ms_stable, labels, brier_canary, brier_stable } = comparison;
    const parts = [];
    if (agreed + differed > 0)
        parts.push(`agrees ${percent(agreed / (agreed + differed))}`);
    if (p95_ms_canary && p95_ms_stable)
        parts.push(`p95 ${percent(p95_ms_canary / p95_ms_stable)} of the stable version's`);
    if (labels > 0)
        parts.push(`Brier score ${(brier_canary ?? 0).toFixed(3)}, stable ${(brier_stable ?? 0).toFixed(3)}, on ${plural(labels, "label")}`);
    return parts.map((part) => ` · ${part}`).join("");
}
export function history(rollout) {
    const gone = rollout.withdrawn;
    return [
        ["Before", rollout.previous ? _jsx("code", { children: rollout.previous }) : "nothing to go back to"],
        [
            "Withdrawn",
            gone ? (_jsxs(_Fragment, { children: [_jsx("code", { children: shortVersion(gone.version) }), " ", ago(gone.time), ": ", gone.reason] })) : ("none"),
        ],
    ];
}
function HeadsTable(props) {
    const { heads, registry, onChanged } = props;
    const releasable = may("admin") && heads.some(({ name }) => registry.heads[name]?.canary || registry.heads[name]?.previous);
    if (heads.length === 0) {
        return (_jsx(Empty, { icon: "models", title: "There is no head yet", children: _jsx("p", { children: "Train one on labelled texts, or on the records of a collection." }) }));
    }
    return (_jsx(Table, { caption: "Heads", rows: heads, rowKey: (head) => head.name, to: (head) => addressOf(`models/heads/${head.name}`), columns: [
            { title: "Head", cell: (head) => head.name },
            { title: "Task", minor: true, cell: (head) => taskOf(head) },
            { title: "Measured", minor: true, numeric: true, cell: (head) => _jsx(Measured, { head: head }) },
            { title: "Stable", cell: (head) => _jsx(Version, { head: head, channel: "stable" }) },
            { title: "Canary", cell: (head) => _jsx(Canary, { head: head, registry: registry }) },
            ...(releasable ? [{
                    title: "Release",
                    minor: true,
                    cell: (head) => {
                        const rollout = registry.heads[head.name];
                        return rollout ? _jsx(ReleaseButtons, { head: head.name, rollout: rollout, onChanged: onChanged }) : null;
                    },
                }] : []),
        ] }));
}
function Measured({ head }) {
    const figure = headline(head.stable ?? head.canary);
    if (!figure)
        return _jsx("span", { class: "note", children: "\u2013" });
    return (_jsxs(_Fragment, { children: [percent(figure.value, 1), " ", _jsx("span", { class: "note", children: figure.name })] }));
}
function Version({ head, channel }) {
    const version = head[channel];
    if (!version)
        return _jsx("span", { class: "note", children: "\u2013" });
    return (_jsxs("span", { title: version.version, children: [_jsx("code", { children: shortVersion(version.version) }), " ", version.error && _jsx(Badge, { tone: "bad", title: version.error.detail, children: "not served" })] }));
}
function Canary({ head, registry }) {
    if (!head.canary)
        return _jsx("span", { class: "note", children: "\u2013" });
    const rollout = registry.heads[head.name];
    return (_jsxs(_Fragment, { children: [_jsx(Version, { head: head, channel: "canary" }), " ", _jsxs("span", { class: "note", children: [percent(head.share), rollout && compared(rollout)] })] }));
}
function WorkersCard({ registry }) {
    const refused = registry.workers.flatMap((worker) => [
        ...(worker.artifact?.refused ?? []).map((one) => ({ worker: worker.worker, what: "artifact", ...one })),
        ...(worker.heads ?? []).flatMap((head) => ["stable", "canary"].flatMap((channel) => {
            const version = head[channel];
            return version?.error ? [{ worker: worker.worker, what: head.name, channel, name: version.version, error: version.error }] : [];
        })),
    ]);
    return (_jsxs("div", { class: "columns", children: [_jsx(Card, { title: "Workers", flush: true, children: registry.workers.length === 0 ? (_jsx(Empty, { icon: "warning", title: "No worker has said what it serves", children: _jsx("p", { children: "It says so within ten seconds of its start." }) })) : (_jsx(Table, { caption: "Workers and what they serve", rows: registry.workers, rowKey: (worker) => worker.worker, columns: [
                        { title: "Worker", cell: (worker) => _jsx("code", { class: "wrap", children: worker.worker }) },
                        { title: "Serves", cell: (worker) => worker.artifact?.stable?.name ?? "–" },
                        { title: "Canary", minor: true, cell: (worker) => worker.artifact?.canary?.name ?? "–" },
                        { title: "Engines", numeric: true, cell: (worker) => count(worker.engines ?? 0) },
                    ] })) }), _jsx(Card, { title: "Refused", flush: refused.length > 0, note: refused.length > 0 ? plural(refused.length, "version") : undefined, children: refused.length === 0 ? (_jsx("p", { class: "note", children: "Every worker serves what the channels name." })) : (_jsx(Table, { caption: "Versions that workers refused", rows: refused, rowKey: (one) => `${one.worker} ${one.what} ${one.channel}`, columns: [
                        { title: "Version", cell: (one) => _jsxs(_Fragment, { children: [_jsx("code", { children: shortVersion(one.name) }), " ", _jsxs("span", { class: "note", children: [one.what, ", ", one.channel] })] }) },
                        { title: "Why", cell: (one) => _jsxs(_Fragment, { children: [_jsx(Badge, { tone: "bad", children: one.error.code }), " ", one.error.detail] }) },
                        { title: "Worker", minor: true, cell: (one) => _jsx("code", { class: "wrap", children: one.worker }) },
                    ] })) })] }));
}
