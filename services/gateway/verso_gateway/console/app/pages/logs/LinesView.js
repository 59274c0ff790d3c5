import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** The lines that are meant, page after page as one scrolls. */
import { Segmented } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { count, plural } from "../../format.js";
import { LineList } from "./LineList.js";
import { useLines } from "./lines.js";
import { change } from "./state.js";
export function LinesView({ state, body, total }) {
    const found = useLines(body);
    const { lines, complete, loading, problem } = found;
    const nearest = state.meaning && state.text !== "";
    const number = complete ? plural(lines.length, "line") : `${count(lines.length)}${total === undefined ? "" : ` of ${count(total)}`} lines read`;
    return (_jsxs(Card, { flush: true, title: nearest ? "Nearest statements first" : lines.length > 0 ? number : "Lines", note: lines.length === 0 ? undefined : loading ? "reading …" : nearest ? number : undefined, actions: !nearest && (_jsx(Segmented, { label: "Order", value: state.oldest ? "oldest" : "newest", choices: [
                { value: "newest", label: "Newest first" },
                { value: "oldest", label: "Oldest first" },
            ], onChange: (order) => change({ order: order === "oldest" ? order : null }) })), children: [problem && _jsx(ErrorState, { problem: problem, retry: found.reload }), !problem && lines.length === 0 && loading && (_jsx("div", { class: "logs-wait", children: _jsx(Loading, { lines: 8, label: "Reading lines" }) })), !problem && lines.length === 0 && complete && (_jsx(Empty, { icon: "logs", title: "No such lines", children: _jsx("p", { children: "No stored line passes what is chosen. Drop a label, look at all times, or look for fewer bytes." }) })), lines.length > 0 && (_jsx(LineList, { label: `${count(lines.length)} lines of ${state.collection}`, lines: lines, contains: state.meaning ? "" : state.text, scores: nearest, ...(loading ? {} : { onEndReached: found.more }) }))] }));
}
