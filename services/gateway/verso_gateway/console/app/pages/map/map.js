import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** The map of a collection: what is drawn is in the address. */
import { useMemo, useState } from "preact/hooks";
import { Button } from "../../components/Button.js";
import { CodeSamples, python } from "../../components/CodeSamples.js";
import { Segmented, Select, TextField } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { Empty, ErrorState, Loading, Notice } from "../../components/States.js";
import { chosen, remember, useCollections } from "../../collections.js";
import { count, milliseconds, percent } from "../../format.js";
import { useRequest } from "../../request.js";
import { place, setQuery } from "../../router.js";
import { MapCanvas } from "./MapCanvas.js";
import { MapLegend } from "./MapLegend.js";
import { MapTable } from "./MapTable.js";
import { SelectedPoint } from "./SelectedPoint.js";
const SIZES = ["1000", "5000", "20000"];
export function MapView() {
    const all = useCollections();
    const { query } = place.value;
    if (all === null)
        return _jsx(Card, { children: _jsx(Loading, { lines: 5 }) });
    const collection = chosen(query.get("collection"), all);
    if (collection === undefined) {
        return (_jsx(Empty, { icon: "map", title: "There is no collection to draw", children: _jsx("p", { children: "Make one, and ingest some documents." }) }));
    }
    return _jsx(CollectionMap, { collection: collection, all: all }, collection.name);
}
function CollectionMap({ collection, all }) {
    const { query } = place.value;
    const isLog = collection.kind === "logs";
    const size = SIZES.includes(query.get("limit") ?? "") ? (query.get("limit") ?? "5000") : "5000";
    const key = query.get("key") ?? "";
    const asked = query.get("colour");
    const colouring = asked === "none" || (asked === "label" && !isLog) ? asked : "group";
    const request = {
        method: "POST",
        path: "/v1/project",
        body: {
            collection: collection.name,
            limit: Number(size),
            colour: colouring,
            ...(colouring === "label" ? { label_key: key } : {}),
        },
    };
    const ready = colouring !== "label" || key !== "";
    const answer = useRequest(ready ? request : null);
    const keys = Object.keys(collection.indexes ?? {});
    return (_jsxs(_Fragment, { children: [_jsx(Card, { children: _jsxs("div", { class: "map-controls", children: [_jsx(Select, { label: "Collection", value: collection.name, choices: all.map((one) => ({ value: one.name, label: one.name })), onChange: (name) => {
                                remember(name);
                                setQuery({ collection: name, point: null, key: null, colour: null });
                            } }), _jsx(Select, { label: "Sample", value: size, choices: SIZES.map((one) => ({ value: one, label: `${count(Number(one))} ${isLog ? "statements" : "records"}` })), onChange: (limit) => setQuery({ limit, point: null }) }), _jsxs("div", { class: "field", children: [_jsx("span", { class: "field-name", children: "Coloured by" }), _jsx(Segmented, { label: "Coloured by", value: colouring, choices: [
                                        { value: "group", label: "Group", title: "groups of near vectors" },
                                        { value: "label", label: "Label", title: "a value of the metadata", disabled: isLog },
                                        { value: "none", label: "Nothing" },
                                    ], onChange: (colour) => setQuery({ colour: colour === "group" ? null : colour, key: colour === "label" ? (keys[0] ?? null) : null, point: null }) })] }), colouring === "label" && _jsx(KeyField, { value: key }), _jsx("div", { class: "map-samples", children: _jsx(CodeSamples, { samples: [{ title: "Draw a map", request, python: `from verso_client import ProjectRequest\n\nasked = ${python(request.body)}\nprint(client.project(ProjectRequest(**asked)).explained)` }] }) })] }) }), !ready ? (_jsx(Card, { children: _jsx(Empty, { icon: "map", title: "Which label?", children: _jsxs("p", { children: ["Name a key of the documents' metadata, such as ", _jsx("code", { children: "host" }), "."] }) }) })) : answer.problem && !answer.data ? (_jsx(Card, { children: _jsx(ErrorState, { problem: answer.problem, retry: answer.reload }) })) : !answer.data || answer.loading ? (_jsx(Card, { children: _jsx(Loading, { lines: 8, label: "The map is drawn" }) })) : answer.data.ids.length === 0 ? (_jsx(Card, { children: _jsx(Empty, { icon: "map", title: "There is nothing to draw yet", children: _jsxs("p", { children: ["The collection ", collection.name, " holds no ", isLog ? "statement" : "record", " with a vector."] }) }) })) : (_jsx(Drawn, { found: answer.data, collection: collection, colouring: colouring, tookMs: answer.tookMs }))] }));
}
function KeyField({ value }) {
    const [typed, setTyped] = useState(value);
    return (_jsxs("form", { class: "map-key", onSubmit: (event) => {
            event.preventDefault();
            setQuery({ key: typed.trim(), point: null });
        }, children: [_jsx(TextField, { label: "Metadata key", value: typed, placeholder: "host", spellcheck: false, onInput: setTyped }), _jsx(Button, { type: "submit", children: "Draw" })] }));
}
function Drawn(props) {
    const { found, collection, colouring, tookMs } = props;
    const [hidden, setHidden] = useState(new Set());
    const { query } = place.value;
    const asTable = query.get("as") === "table";
    const point = query.get("point");
    const at = useMemo(() => (point === null ? -1 : found.ids.indexOf(point)), [found, point]);
    const selected = at < 0 ? null : at;
    const select = (index) => setQuery({ point: index === null ? null : (found.ids[index] ?? null) }, { replace: true });
    const nameOf = (index) => {
        const colour = found.colours[found.colour[index] ?? -1];
        const what = found.templates?.[index] ?? found.ids[index] ?? "";
        const lines = found.lines?.[index];
        return [what, lines === undefined ? "" : `${count(lines)} lines`, colour && colouring === "label" ? colour.label : ""]
            .filter(Boolean)
            .join(" · ");
    };
    const [across = 0, up = 0] = found.explained;
    const isLog = collection.kind === "logs";
    return (_jsxs(_Fragment, { children: [(found.unread ?? 0) > 0 && (_jsxs(Notice, { tone: "warning", children: [count(found.unread ?? 0), " records of the sample have no vector in the store."] })), _jsxs("div", { class: "map-columns", children: [_jsx(Card, { flush: true, title: `${count(found.ids.length)} of ${count(found.records)} ${isLog ? "statements" : "records"}`, note: `two directions show ${percent(across + up)} of the variance${tookMs === undefined ? "" : ` · ${milliseconds(tookMs)}`}`, actions: _jsx(Segmented, { label: "Shown as", value: asTable ? "table" : "map", choices: [
                                { value: "map", label: "Map" },
                                { value: "table", label: "Table" },
                            ], onChange: (value) => setQuery({ as: value === "table" ? "table" : null }, { replace: true }) }), children: asTable ? (_jsx(MapTable, { found: found, hidden: hidden, selected: selected, onSelect: select })) : (_jsx(MapCanvas, { found: found, hidden: hidden, selected: selected, onSelect: select, nameOf: nameOf })) }), _jsxs("div", { class: "map-side", children: [_jsx(SelectedPoint, { found: found, selected: selected, collection: collection }), _jsx(MapLegend, { found: found, colouring: colouring, hidden: hidden, onHidden: setHidden })] })] })] }));
}
