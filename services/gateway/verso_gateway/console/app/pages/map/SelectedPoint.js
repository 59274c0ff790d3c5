import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** The selected point: its text, and where to go on from it. */
import { segment } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Card } from "../../components/Layout.js";
import { ErrorState, Loading } from "../../components/States.js";
import { plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf } from "../../router.js";
const SHOWN = 1200;
const QUERY = 160;
export function SelectedPoint({ found, selected, collection }) {
    if (selected === null) {
        return (_jsx(Card, { title: "Point", children: _jsx("p", { class: "note", children: "Choose a point to read its text. By keyboard: focus the map, then the arrow keys." }) }));
    }
    const id = found.ids[selected] ?? "";
    if (found.templates !== undefined && found.lines !== undefined && found.lines.length > 0) {
        return (_jsx(Card, { title: "Statement", note: plural(found.lines[selected] ?? 0, "line"), children: _jsxs("div", { class: "stack", children: [_jsx("pre", { class: "map-text", children: found.templates[selected] }), _jsx("div", { class: "actions", children: _jsx(Button, { small: true, icon: "logs", to: addressOf("logs", { collection: collection.name, statement: id }), children: "Its lines" }) })] }) }));
    }
    return _jsx(SelectedRecord, { id: id, collection: collection.name }, id);
}
function SelectedRecord({ id, collection }) {
    const answer = useRequest({ method: "GET", path: `/v1/documents/${segment(id)}`, query: { collection } });
    const document = id.slice(0, id.lastIndexOf("#"));
    const text = answer.data?.text;
    return (_jsx(Card, { title: _jsx("span", { class: "map-id", children: id }), children: _jsxs("div", { class: "stack", children: [answer.problem ? (_jsx(ErrorState, { problem: answer.problem })) : !answer.data ? (_jsx(Loading, { lines: 3 })) : (_jsx("pre", { class: "map-text", children: text === null || text === undefined
                        ? "This text is not UTF-8."
                        : text.length > SHOWN
                            ? `${text.slice(0, SHOWN)}…`
                            : text })), _jsxs("div", { class: "actions", children: [_jsx(Button, { small: true, icon: "document", to: addressOf("documents", { collection, id: document }), children: "The document" }), text && (_jsx(Button, { small: true, icon: "search", to: addressOf("search", { collection, as: "search", q: shortened(text) }), children: "Search for it" }))] })] }) }));
}
/** Return the beginning of a text as a query. */
function shortened(text) {
    return text.replaceAll(/\s+/g, " ").trim().slice(0, QUERY);
}
