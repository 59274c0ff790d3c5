import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
import { useId, useRef } from "preact/hooks";
/** Tabs as WAI-ARIA describes them: arrows move between them, the panel follows. */
export function Tabs({ label, tabs, selected, onSelect, children }) {
    const name = useId();
    const list = useRef(null);
    const move = (event) => {
        const steps = { ArrowRight: 1, ArrowLeft: -1 };
        const step = steps[event.key];
        if (step === undefined)
            return;
        event.preventDefault();
        const at = tabs.findIndex((tab) => tab.id === selected);
        const next = tabs[(at + step + tabs.length) % tabs.length];
        if (next === undefined)
            return;
        onSelect(next.id);
        list.current?.querySelector(`#${CSS.escape(`${name}-${next.id}`)}`)?.focus();
    };
    return (_jsxs("div", { class: "tabs", children: [_jsx("div", { class: "tab-list", role: "tablist", "aria-label": label, ref: list, onKeyDown: move, children: tabs.map((tab) => (_jsx("button", { id: `${name}-${tab.id}`, type: "button", role: "tab", "aria-selected": tab.id === selected, "aria-controls": `${name}-panel`, tabIndex: tab.id === selected ? 0 : -1, onClick: () => onSelect(tab.id), children: tab.label }, tab.id))) }), _jsx("div", { id: `${name}-panel`, class: "tab-panel", role: "tabpanel", "aria-labelledby": `${name}-${selected}`, tabIndex: 0, children: children })] }));
}
