import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Logs: how many lines when, which labels and statements, and the lines themselves, as they come too. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { chosen, collectionsProblem, readCollections, useCollections } from "../../collections.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Card, Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading, MissingNotice, Notice } from "../../components/States.js";
import { Tabs } from "../../components/Tabs.js";
import { count, duration } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf } from "../../router.js";
import { LabelsPanel } from "./LabelsPanel.js";
import { LineDialog } from "./LineDialog.js";
import { LinesView } from "./LinesView.js";
import { LiveView } from "./LiveView.js";
import { StatementsView } from "./StatementsView.js";
import { Toolbar } from "./Toolbar.js";
import { VolumeCard } from "./VolumeCard.js";
import { ofStatementRequest, queryBody, samplesOf } from "./requests.js";
import { boundsOf, change, containsOf, logsState, whereQuery } from "./state.js";
export default function LogsPage() {
    const all = useCollections();
    const given = logsState();
    if (all === null) {
        const problem = collectionsProblem.value;
        return _jsx(Page, { title: "Logs", children: problem ? _jsx(ErrorState, { problem: problem, retry: () => void readCollections() }) : _jsx(Loading, { lines: 6 }) });
    }
    const logs = all.filter((one) => one.kind === "logs");
    const name = given.collection || chosen(null, logs)?.name;
    if (name === undefined)
        return _jsx(NoLogs, {});
    return _jsx(Logs, { state: { ...given, collection: name }, names: logs.map((one) => one.name) });
}
const LIVE_COUNT_MS = 10_000;
function NoLogs() {
    return (_jsx(Page, { title: "Logs", children: _jsx(Card, { children: _jsxs(Empty, { icon: "logs", title: "No log collections yet", children: [_jsx("p", { children: "A collection of kind logs keeps lines together: a statement shares a vector, and every line is read back byte for byte." }), _jsx("pre", { class: "logs-howto", children: _jsx("code", { children: "verso collections create web --kind logs\nverso tail /var/log/app.log -c web --label service=shop" }) }), _jsx(Button, { to: addressOf("collections"), children: "Collections" })] }) }) }));
}
function Logs({ state, names }) {
    const [nowS, setNowS] = useState(() => Math.floor(Date.now() / 1000));
    const [round, setRound] = useState(0);
    // "Last hour" is that before the last refresh, not before each drawing of the page.
    const bounds = useMemo(() => boundsOf(state, nowS), [state.from, state.to, state.lastS, nowS]);
    const where = whereQuery(state, bounds);
    const volume = useRequest({
        method: "GET",
        path: "/v1/logs/volume",
        query: { ...where, contains: containsOf(state), by: state.by === "none" ? null : state.by },
    });
    const own = useRequest(ofStatementRequest(state, bounds, volume.data?.interval_s));
    const refresh = () => {
        setNowS(Math.floor(Date.now() / 1000));
        volume.reload();
    };
    useEffect(() => {
        if (!state.live)
            return undefined;
        const timer = setInterval(refresh, LIVE_COUNT_MS);
        return () => clearInterval(timer);
    }, [state.live]);
    const samples = samplesOf(state, bounds, nowS, volume.data?.interval_s);
    return (_jsxs(Page, { title: "Logs", wide: true, about: "Lines byte for byte as they came, by time, label, statement and meaning.", actions: _jsxs(_Fragment, { children: [_jsx(CodeSamples, { samples: samples }), _jsx(Button, { small: true, icon: "refresh", label: "Refresh", onClick: () => (refresh(), setRound(round + 1)) }), _jsx(Button, { small: true, icon: state.live ? "pause" : "play", pressed: state.live, onClick: () => change({ live: !state.live, view: null, statement: null, "by-meaning": null }), children: "Live tail" })] }), children: [_jsx(Toolbar, { state: state, names: names, statement: own.data?.statements[0]?.statement }), _jsx(MissingNotice, { names: volume.data?.missing_partitions }), volume.data && _jsx(WaitingNotice, { waiting: volume.data.waiting, live: state.live }), !names.includes(state.collection) && volume.problem ? (_jsx(ErrorState, { problem: volume.problem, retry: volume.reload })) : (_jsx(Found, { state: state, bounds: bounds, nowS: nowS, volume: volume, own: own }, round)), _jsx(LineDialog, { state: state })] }));
}
function Found({ state, bounds, nowS, volume, own }) {
    const unchosen = state.statement === null && !state.meaning;
    return (_jsxs("div", { class: "logs-grid", children: [_jsx(LabelsPanel, { state: state, bounds: bounds }), _jsxs("div", { class: "logs-main", children: [state.live && _jsx(LiveView, { state: state }), _jsx(VolumeCard, { state: state, bounds: bounds, volume: volume, own: own }), !state.live && (_jsx(Tabs, { label: "Lines or statements", tabs: TABS, selected: state.view, onSelect: (view) => change({ view: view === "lines" ? null : view }), children: state.view === "lines" ? (_jsx(LinesView, { state: state, body: queryBody(state, bounds), total: unchosen ? volume.data?.lines : undefined })) : (_jsx(StatementsView, { state: state, bounds: bounds, nowS: nowS, intervalS: volume.data?.interval_s })) }))] })] }));
}
const TABS = [
    { id: "lines", label: "Lines" },
    { id: "statements", label: "Statements" },
];
function WaitingNotice({ waiting, live }) {
    const lines = waiting.lines ?? 0;
    if (lines === 0 || live)
        return null;
    return (_jsxs(Notice, { children: [count(lines), " accepted ", lines === 1 ? "line is" : "lines are", " not searchable yet", waiting.oldest_s ? `, the oldest for ${duration(waiting.oldest_s)}` : "", ". The live tail shows them already."] }));
}
