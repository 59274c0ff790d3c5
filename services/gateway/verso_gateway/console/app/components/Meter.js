import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
export function Meter({ label, value, max = 1, mark, tone = "accent", text }) {
    const share = (part) => `${Math.max(0, Math.min(1, max > 0 ? part / max : 0)) * 100}%`;
    return (_jsxs("span", { class: `meter ${tone}`, role: "meter", "aria-label": label, "aria-valuenow": Number(value.toFixed(4)), "aria-valuemin": 0, "aria-valuemax": max, "aria-valuetext": text, children: [_jsx("span", { class: "meter-fill", style: { width: share(value) } }), mark !== undefined && _jsx("span", { class: "meter-mark", style: { left: share(mark) } })] }));
}
/** Parts of a whole in one bar, with a legend that needs no colour to be read. */
export function Parts({ label, parts, total }) {
    const whole = total ?? parts.reduce((sum, part) => sum + part.value, 0);
    const shown = parts.filter((part) => part.value > 0);
    return (_jsxs("figure", { class: "parts", children: [_jsx("div", { class: "parts-bar", role: "img", "aria-label": `${label}: ${shown.map((part) => `${part.label} ${part.text}`).join(", ")}`, children: shown.map((part) => (_jsx("span", { class: `series-${part.colour}`, style: { width: `${whole > 0 ? (part.value / whole) * 100 : 0}%` } }, part.label))) }), _jsx("ul", { class: "legend", children: shown.map((part) => (_jsxs("li", { children: [_jsx("span", { class: `swatch series-${part.colour}` }), part.label, " ", _jsx("b", { children: part.text })] }, part.label))) })] }));
}
