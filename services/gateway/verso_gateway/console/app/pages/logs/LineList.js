import { jsx as _jsx } from "preact/jsx-runtime";
/** Lines one below the other, of which only those in sight are in the page; arrows move between them. */
import { useRef } from "preact/hooks";
import { VirtualList } from "../../components/VirtualList.js";
import { lineTime } from "../../components/ticks.js";
import { useNarrow } from "../../components/useNarrow.js";
import { LineRow, ROW } from "./LineRow.js";
export function LineList({ label, lines, contains = "", scores = false, follow = false, onEndReached }) {
    const frame = useRef(null);
    const rowHeight = useNarrow() ? ROW.narrow : ROW.wide;
    const move = (event) => {
        const steps = { ArrowDown: 1, ArrowUp: -1 };
        const step = steps[event.key];
        const row = document.activeElement?.closest("[data-result]");
        if (step === undefined || row === null || row === undefined)
            return;
        const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
        if (next instanceof HTMLElement) {
            event.preventDefault();
            next.focus({ preventScroll: true });
            next.scrollIntoView({ block: "nearest" });
        }
    };
    return (_jsx("div", { class: "log-list", ref: frame, style: { maxHeight: `${lines.length * rowHeight}px` }, onKeyDown: move, children: _jsx(VirtualList, { label: label, count: lines.length, rowHeight: rowHeight, follow: follow, ...(onEndReached ? { onEndReached } : {}), row: (index) => {
                const line = lines[index];
                if (line === undefined)
                    return null;
                const before = lines[index - 1];
                const same = before !== undefined && dayOf(before) === dayOf(line);
                return _jsx(LineRow, { line: line, contains: contains, day: !same, score: scores }, line.id);
            } }) }));
}
function dayOf(line) {
    return lineTime(line.time ?? line.arrived).day;
}
