import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
import { Link } from "../router.js";
export function Table({ caption, columns, rows, rowKey, to, selected, onSelect }) {
    return (_jsx("div", { class: "table-frame", role: "region", "aria-label": caption, tabIndex: 0, children: _jsxs("table", { class: "table", children: [_jsx("caption", { class: "visually-hidden", children: caption }), _jsx("thead", { children: _jsx("tr", { children: columns.map((column) => (_jsx("th", { scope: "col", class: classOf(column), style: column.width ? { width: column.width } : undefined, children: column.title }, column.title))) }) }), _jsx("tbody", { children: rows.map((row) => (_jsx("tr", { "aria-selected": selected?.(row), class: onSelect ? "selectable" : undefined, onClick: onSelect && (() => onSelect(row)), children: columns.map((column, index) => (_jsx("td", { class: classOf(column), children: index === 0 && to ? (_jsx(Link, { to: to(row), class: "row-link", children: column.cell(row) })) : (column.cell(row)) }, column.title))) }, rowKey(row)))) })] }) }));
}
function classOf(column) {
    const names = [column.numeric ? "numeric" : "", column.minor ? "minor" : ""].filter(Boolean);
    return names.length ? names.join(" ") : undefined;
}
