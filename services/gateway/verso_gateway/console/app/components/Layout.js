import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** A page with its only first-level heading. */
export function Page({ title, about, actions, quiet, wide, children }) {
    document.title = `${title} · Verso`;
    return (_jsxs("div", { class: wide ? "page wide" : "page", children: [_jsxs("header", { class: quiet ? "page-head visually-hidden" : "page-head", children: [_jsxs("div", { children: [_jsx("h1", { children: title }), about && _jsx("p", { class: "about", children: about })] }), actions && _jsx("div", { class: "actions", children: actions })] }), children] }));
}
export function Card({ title, note, actions, flush, children }) {
    return (_jsxs("section", { class: flush ? "card flush" : "card", children: [(title || actions) && (_jsxs("header", { class: "card-head", children: [_jsxs("div", { class: "card-title", children: [title && _jsx("h2", { children: title }), note && _jsx("span", { class: "note", children: note })] }), actions && _jsx("div", { class: "actions", children: actions })] })), _jsx("div", { class: "card-body", children: children })] }));
}
/** A short word on a state. */
export function Badge({ tone = "neutral", children, title }) {
    return (_jsx("span", { class: `badge ${tone}`, title: title, children: children }));
}
/** One figure with its name, and what stands behind it. */
export function Stat({ label, value, unit, note, tone, }) {
    return (_jsxs("div", { class: `stat ${tone ?? ""}`, children: [_jsx("dt", { children: label }), _jsxs("dd", { children: [_jsx("span", { class: "stat-value", children: value }), unit && _jsxs("span", { class: "stat-unit", children: [" ", unit] }), note && _jsx("span", { class: "stat-note", children: note })] })] }));
}
/** Figures side by side. */
export function Stats({ children }) {
    return _jsx("dl", { class: "stats", children: children });
}
/** Names and values, one a line. */
export function Facts({ facts }) {
    return (_jsx("dl", { class: "facts", children: facts.map(([name, value]) => (_jsxs("div", { children: [_jsx("dt", { children: name }), _jsx("dd", { children: value })] }, name))) }));
}
/** A key of the keyboard. */
export function Key({ children }) {
    return _jsx("kbd", { children: children });
}
