import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Jobs: what the platform has to do, does and has done; what failed, and what could not be done at all. */
import { CodeSamples, keywords } from "../../components/CodeSamples.js";
import { Badge, Page } from "../../components/Layout.js";
import { Tabs } from "../../components/Tabs.js";
import { plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { DeadLettersView } from "./DeadLettersView.js";
import { JobView } from "./JobView.js";
import { JobsView } from "./JobsView.js";
import { eventsRequest, listRequest, useJobs } from "./live.js";
import { filterOf, jobsState, setState } from "./state.js";
export default function JobsPage() {
    const state = jobsState();
    const answer = useJobs(filterOf(state));
    const dead = useRequest({ method: "GET", path: "/v1/dead-letters", query: { limit: 200 } }, { everyS: 30 });
    const letters = dead.data?.dead_letters.length ?? 0;
    const tabs = [
        { id: "jobs", label: "Jobs" },
        {
            id: "dead",
            label: (_jsxs(_Fragment, { children: ["Dead letters", " ", letters > 0 && (_jsx(Badge, { tone: "bad", title: plural(letters, "dead letter"), children: dead.data?.next_cursor ? `${letters}+` : letters }))] })),
        },
    ];
    const open = state.job !== null;
    const known = answer.jobs?.find((job) => job.id === state.job);
    return (_jsx(Page, { title: "Jobs", wide: true, about: "What was accepted, is worked on, and has ended with a result or a reason.", actions: _jsxs(_Fragment, { children: [_jsx(LiveBadge, { connection: answer.connection }), _jsx(CodeSamples, { samples: samplesOf(state) })] }), children: _jsxs("div", { class: open ? "jobs-grid open" : "jobs-grid", children: [_jsx("div", { class: "jobs-list", children: _jsx(Tabs, { label: "Jobs or dead letters", tabs: tabs, selected: state.view, onSelect: (view) => setState({ view: view === "jobs" ? null : view }), children: state.view === "jobs" ? _jsx(JobsView, { state: state, answer: answer }) : _jsx(DeadLettersView, { state: state, answer: dead }) }) }), state.job !== null && _jsx(JobView, { id: state.job, known: known, onChanged: dead.reload }, state.job)] }) }));
}
function LiveBadge({ connection }) {
    if (connection === "live")
        return _jsx(Badge, { tone: "good", title: "Changes are shown as they happen", children: "live" });
    return _jsx(Badge, { tone: "warning", children: connection === "lost" ? "connecting again" : "connecting" });
}
function samplesOf(state) {
    if (state.view === "dead") {
        return [
            { title: "List dead letters", request: { method: "GET", path: "/v1/dead-letters" }, python: 'for job in client.jobs(status="dead"):\n    print(job)' },
            { title: "Replay them all", request: { method: "POST", path: "/v1/dead-letters/replay" }, python: "print(client.replay_dead())" },
        ];
    }
    const filter = filterOf(state);
    const arguments_ = keywords({
        status: filter.statuses.length === 1 ? filter.statuses[0] : undefined,
        kind: filter.kinds.length === 1 ? filter.kinds[0] : undefined,
        reads: filter.reads || undefined,
    }).replace(/^, /, "");
    const python = `for job in client.jobs(${arguments_}):\n    print(job)`;
    return [
        { title: "List jobs", request: listRequest(filter), python },
        { title: "Follow them", request: eventsRequest(filter), python: "# one job until it ends\nfor event in client.events(JOB_ID):\n    print(event)" },
    ];
}
