import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** The points of the map as a table: the same points, colours and links, for those who do not look. */
import { useMemo, useState } from "preact/hooks";
import { Select } from "../../components/Field.js";
import { VirtualList } from "../../components/VirtualList.js";
import { count } from "../../format.js";
const ROW_PX = 40;
export function MapTable({ found, hidden, selected, onSelect }) {
    const [order, setOrder] = useState("colour");
    const rows = useMemo(() => sorted(found, hidden, order), [found, hidden, order]);
    return (_jsxs("div", { class: "map-table", children: [_jsxs("div", { class: "map-table-head", children: [_jsxs("span", { class: "note", children: [count(rows.length), " points"] }), _jsx(Select, { label: "Order", bare: true, value: order, choices: [
                            { value: "colour", label: "by colour" },
                            { value: "x", label: "from left to right" },
                            { value: "y", label: "from top to bottom" },
                            { value: "id", label: "by id" },
                        ], onChange: setOrder })] }), _jsx(VirtualList, { count: rows.length, rowHeight: ROW_PX, label: "Points of the map", row: (at) => {
                    const index = rows[at] ?? 0;
                    const colour = found.colour[index] ?? -1;
                    return (_jsxs("button", { type: "button", class: index === selected ? "map-row selected" : "map-row", "aria-pressed": index === selected, onClick: () => onSelect(index), children: [_jsx("span", { class: `map-swatch ${colour < 0 ? "none" : `map-${colour + 1}`}` }), _jsx("span", { class: "map-row-id", children: found.templates?.[index] ?? found.ids[index] }), _jsx("span", { class: "map-row-label note", children: found.colours[colour]?.label ?? "" }), _jsx("span", { class: "map-row-place", children: (found.x[index] ?? 0).toFixed(2) }), _jsx("span", { class: "map-row-place", children: (found.y[index] ?? 0).toFixed(2) })] }, index));
                } })] }));
}
function sorted(found, hidden, order) {
    const rows = found.ids.map((_, index) => index).filter((index) => !hidden.has(found.colour[index] ?? -1));
    const by = {
        colour: (index) => ((found.colour[index] ?? -1) + 100) % 100,
        x: (index) => found.x[index] ?? 0,
        y: (index) => -(found.y[index] ?? 0),
        id: () => 0,
    };
    if (order === "id")
        return rows.sort((a, b) => (found.ids[a] ?? "").localeCompare(found.ids[b] ?? ""));
    return rows.sort((a, b) => by[order](a) - by[order](b) || a - b);
}
