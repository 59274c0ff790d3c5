import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Lines as the platform accepts them, before any of them is searchable. */
import { useState } from "preact/hooks";
import { Button } from "../../components/Button.js";
import { Badge, Card } from "../../components/Layout.js";
import { Empty, ErrorState, Loading, Notice } from "../../components/States.js";
import { count, plural } from "../../format.js";
import { LineList } from "./LineList.js";
import { useTail } from "./lines.js";
import { queryBody, tailRequest } from "./requests.js";
const ALL = { from: null, to: null };
export function LiveView({ state }) {
    const [paused, setPaused] = useState(false);
    const tail = useTail(tailRequest(state), queryBody({ ...state, statement: null, meaning: false }, ALL), paused);
    const { lines, dropped, missed, problem } = tail;
    return (_jsxs(Card, { flush: true, title: "Live tail", note: `${plural(lines.length, "line")}${dropped > 0 ? `, ${count(dropped)} older ones left out` : ""}`, actions: _jsxs(_Fragment, { children: [_jsx(ConnectionBadge, { state: tail.state, paused: paused }), _jsx(Button, { small: true, icon: paused ? "play" : "pause", pressed: paused, onClick: () => setPaused(!paused), children: paused ? "Go on" : "Hold" })] }), children: [problem && _jsx(ErrorState, { problem: problem }), missed !== 0 && (_jsxs(Notice, { tone: "warning", children: [missed === null ? "Some lines are" : `${plural(missed, "line")} ${missed === 1 ? "is" : "are"}`, " missing here: the platform no longer had them for the tail. They are among the stored lines."] })), !problem && lines.length === 0 && tail.state === "connecting" && (_jsx("div", { class: "logs-wait", children: _jsx(Loading, { lines: 5, label: "Connecting to the live tail" }) })), !problem && lines.length === 0 && tail.state !== "connecting" && (_jsx(Empty, { icon: "play", title: "Waiting for lines", children: _jsx("p", { children: "A line is shown within a second of its acceptance." }) })), lines.length > 0 && _jsx(LineList, { label: `Newest lines of ${state.collection}`, lines: lines, contains: state.text, follow: true })] }));
}
function ConnectionBadge({ state, paused }) {
    if (paused)
        return _jsx(Badge, { tone: "warning", children: "held" });
    if (state === "open")
        return _jsx(Badge, { tone: "good", children: "live" });
    return _jsx(Badge, { tone: "warning", children: state === "lost" ? "connecting again" : "connecting" });
}
