import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** How a search is done: what is compared, reranking, time, and the conditions that hold. */
import { Select, Switch, TextField } from "../../components/Field.js";
import { Icon } from "../../components/Icon.js";
import { conditionText } from "../../filters.js";
import { setQuery } from "../../router.js";
export function Options({ state, collection }) {
    const hybrid = collection.search === "hybrid" && collection.kind === "documents";
    const modes = [
        { value: "default", label: hybrid ? "Meaning and words" : "Meaning" },
        ...(hybrid
            ? [
                { value: "dense", label: "Meaning alone (vectors)" },
                { value: "sparse", label: "Words alone (BM25)" },
            ]
            : []),
    ];
    return (_jsxs("div", { class: "side-block", children: [hybrid && (_jsx(Select, { label: "Compare by", value: state.mode === "hybrid" ? "default" : state.mode, choices: modes, onChange: (mode) => setQuery({ mode: mode === "default" ? null : mode }) })), _jsx(Select, { label: "Passages", value: String(state.limit), choices: ["5", "10", "25", "50"].map((value) => ({ value, label: value })), onChange: (limit) => setQuery({ limit: limit === "10" ? null : limit }) }), _jsx(Switch, { label: "Read and reorder (slower)", checked: state.rerank, onChange: (rerank) => setQuery({ rerank }) }), _jsxs("details", { class: "side-times", open: state.since !== "" || state.until !== "", children: [_jsx("summary", { children: "Time" }), _jsx(TextField, { label: "From", type: "datetime-local", value: state.since, onInput: (since) => setQuery({ since }, { replace: true }) }), _jsx(TextField, { label: "Until", type: "datetime-local", value: state.until, onInput: (until) => setQuery({ until }, { replace: true }) })] })] }));
}
/** The conditions that hold; a click removes one. */
export function Conditions({ state }) {
    if (state.conditions.length === 0)
        return null;
    return (_jsx("ul", { class: "chips", "aria-label": "Conditions that hold", children: state.conditions.map((condition) => (_jsx("li", { children: _jsxs("button", { type: "button", class: "chip on", title: "Remove this condition", onClick: () => setQuery({ where: state.conditions.filter((one) => one !== condition).map(conditionText) }), children: [_jsx("span", { class: "chip-field", children: condition.field }), " ", String(condition.value), _jsx(Icon, { name: "close", size: 12 })] }) }, conditionText(condition)))) }));
}
