import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** What each colour stands for; a colour can be left out. */
import { Card } from "../../components/Layout.js";
import { count } from "../../format.js";
export function MapLegend({ found, colouring, hidden, onHidden }) {
    if (colouring === "none")
        return null;
    const without = found.colour.filter((one) => one < 0).length;
    const rows = [
        ...found.colours.map((one, index) => ({ index, ...one })),
        ...(without > 0 ? [{ index: -1, label: found.colours.length === 12 ? "other values, or none" : "without a value", points: without }] : []),
    ];
    const toggle = (index) => {
        const next = new Set(hidden);
        if (!next.delete(index))
            next.add(index);
        onHidden(next);
    };
    return (_jsx(Card, { title: colouring === "group" ? "Groups" : "Labels", note: colouring === "group" ? "the text nearest to each middle" : undefined, children: _jsx("ul", { class: "map-legend", children: rows.map((row) => (_jsx("li", { children: _jsxs("label", { children: [_jsx("input", { type: "checkbox", checked: !hidden.has(row.index), onChange: () => toggle(row.index) }), _jsx("span", { class: `map-swatch ${row.index < 0 ? "none" : `map-${row.index + 1}`}` }), _jsx("span", { class: "map-label", title: row.label, children: row.label }), _jsx("span", { class: "note", children: count(row.points) })] }) }, row.index))) }) }));
}
