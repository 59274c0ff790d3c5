import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** What stands below the field before anything is asked: what there is to ask. */
import { remember } from "../../collections.js";
import { Icon } from "../../components/Icon.js";
import { Key } from "../../components/Layout.js";
import { Notice } from "../../components/States.js";
import { bytes, count, percent } from "../../format.js";
import { useRequest } from "../../request.js";
import { Link, addressOf, setQuery } from "../../router.js";
import { recent } from "./recent.js";
const SHOWN = 8;
export function Landing({ collection, found }) {
    const shown = [...found].sort((a, b) => Number(b.name === collection.name) - Number(a.name === collection.name));
    const names = new Set(found.map((one) => one.name));
    const asked = recent().filter((one) => names.has(one.collection));
    return (_jsxs(_Fragment, { children: [asked.length > 0 && (_jsxs("section", { class: "landing-part", children: [_jsx("h2", { children: "Asked before" }), _jsx("ul", { class: "landing-asked", children: asked.map((one) => (_jsx("li", { children: _jsxs(Link, { "data-result": true, to: addressOf("search", { q: one.query, collection: one.collection, as: one.way === "search" ? "search" : null }), children: [_jsx(Icon, { name: "clock", size: 15 }), _jsx("span", { children: one.query }), _jsx("small", { children: one.collection })] }) }, `${one.collection} ${one.query}`))) })] })), _jsxs("section", { class: "landing-part", children: [_jsx("h2", { children: "Collections" }), _jsx("ul", { class: "landing-collections", children: shown.slice(0, SHOWN).map((one) => (_jsx(CollectionChoice, { collection: one, selected: one.name === collection.name }, one.name))) })] }), _jsxs("p", { class: "landing-keys", children: [_jsxs("span", { children: [_jsx(Key, { children: "/" }), " to the field"] }), _jsxs("span", { children: [_jsx(Key, { children: "j" }), " ", _jsx(Key, { children: "k" }), " through results"] }), _jsxs("span", { children: [_jsx(Key, { children: "?" }), " all keys"] })] })] }));
}
function CollectionChoice({ collection, selected }) {
    const { data, problem } = useRequest({ method: "GET", path: `/v1/collections/${collection.name}` });
    return (_jsxs("li", { children: [_jsxs("button", { type: "button", class: "choice", "aria-pressed": selected, onClick: () => {
                    remember(collection.name);
                    setQuery({ collection: collection.name });
                }, children: [_jsx("span", { class: "choice-name", children: collection.name }), _jsx("span", { class: "choice-kind", children: collection.kind === "logs" ? "logs" : "documents" }), data && _jsx(Kept, { collection: collection, statistics: data }), !data && !problem && _jsx("span", { class: "choice-figures", children: "\u00A0" }), problem && _jsx("span", { class: "choice-figures", children: problem.detail })] }), selected && data?.documents === 0 && _jsx(NothingStored, { collection: collection })] }));
}
function Kept({ collection, statistics }) {
    if (statistics.documents === 0)
        return _jsx("span", { class: "choice-figures", children: "nothing stored yet" });
    const what = collection.kind === "logs" ? "line" : "document";
    const share = statistics.documents > 0 ? statistics.verified / statistics.documents : 0;
    return (_jsxs("span", { class: "choice-figures", children: [_jsx("b", { children: count(statistics.documents) }), " ", statistics.documents === 1 ? what : `${what}s`, " \u00B7 ", bytes(statistics.bytes_text), " of text", share >= 1 ? " · every text verified" : ` · ${percent(Math.floor(share * 100) / 100)} verified`] }));
}
function NothingStored({ collection }) {
    return (_jsxs(Notice, { children: ["Send something: ", _jsxs("code", { children: ["verso ingest FILE --collection ", collection.name] }), ". Or look at a sample corpus:", " ", _jsx("code", { children: "verso demo --stay" })] }));
}
