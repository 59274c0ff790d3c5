import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
import { useEffect, useRef, useState } from "preact/hooks";
import { chosen, collectionsProblem, readCollections, remember, useCollections } from "../../collections.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Segmented, Select } from "../../components/Field.js";
import { Icon } from "../../components/Icon.js";
import { Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading, MissingNotice } from "../../components/States.js";
import { narrow } from "../../narrow.js";
import { useRequest } from "../../request.js";
import { setQuery } from "../../router.js";
import { AnswerCard } from "./Answer.js";
import { Facets } from "./Facets.js";
import { Hits } from "./Hits.js";
import { Landing } from "./Landing.js";
import { Conditions, Options } from "./Options.js";
import { noteQuestion } from "./recent.js";
import { requestsOf, stateOf } from "./state.js";
export default function SearchPage() {
    const found = useCollections();
    const state = stateOf();
    if (found === null) {
        const problem = collectionsProblem.value;
        return (_jsx(Page, { title: "Search", quiet: true, children: problem ? _jsx(ErrorState, { problem: problem, retry: () => void readCollections() }) : _jsx(Loading, { lines: 4 }) }));
    }
    const collection = chosen(state.collection, found);
    if (collection === undefined)
        return _jsx(NoCollection, { name: state.collection, found: found });
    return _jsx(Searching, { state: state, collection: collection, found: found });
}
function Searching({ state, collection, found, }) {
    const requests = requestsOf(state, collection);
    const hits = useRequest(requests?.search ?? null);
    const answer = useRequest(requests?.answer ?? null);
    if (requests === null) {
        return (_jsx(Page, { title: "Search", quiet: true, children: _jsxs("div", { class: "landing", children: [_jsxs("header", { class: "landing-head", children: [_jsx("p", { class: "landing-title", children: state.way === "ask" ? "What do you want to know?" : "What are you looking for?" }), _jsx("p", { class: "about", children: state.way === "ask"
                                    ? "An answer is a part of a stored text, shown in place. Where no text answers, the console says so."
                                    : "Passages by meaning and by words. Each text is rebuilt from its vector and patch, byte for byte." })] }), _jsx(SearchField, { state: state, collection: collection, found: found }), _jsx(Landing, { collection: collection, found: found })] }) }));
    }
    return (_jsxs(Page, { title: state.query, quiet: true, children: [_jsx(SearchField, { state: state, collection: collection, found: found, children: _jsx(CodeSamples, { samples: requests.samples }) }), _jsxs("div", { class: "search-columns", children: [_jsxs("div", { class: "search-results", children: [_jsx(MissingNotice, { names: hits.data?.missing_partitions }), requests.answer !== null && _jsx(AnswerCard, { answer: answer, collection: collection }), _jsx(Hits, { hits: hits, state: state, collection: collection })] }), _jsxs("aside", { class: "search-side", "aria-label": "Narrow the search", children: [_jsx(Conditions, { state: state }), _jsxs(Side, { children: [_jsx(Options, { state: state, collection: collection }), collection.kind === "documents" && _jsx(Facets, { collection: collection, state: state, hits: hits.data?.hits ?? [] })] })] })] })] }));
}
/** What narrows a search: beside the results, or folded above them. */
function Side({ children }) {
    if (!narrow.value)
        return _jsx(_Fragment, { children: children });
    return (_jsxs("details", { children: [_jsx("summary", { children: "Narrow the search" }), children] }));
}
function SearchField({ state, collection, found, children, }) {
    const [text, setText] = useState(state.query);
    const field = useRef(null);
    useEffect(() => setText(state.query), [state.query]);
    useEffect(() => {
        if (state.query === "")
            field.current?.focus();
    }, []);
    const submit = () => {
        noteQuestion(collection.name, state.way, text.trim());
        setQuery({ q: text.trim(), collection: collection.name });
    };
    return (_jsxs("form", { class: "search-form", role: "search", onSubmit: (event) => {
            event.preventDefault();
            submit();
        }, children: [_jsxs("div", { class: "search-field", children: [_jsx(Icon, { name: "search", size: 20 }), _jsx("input", { ref: field, type: "search", "data-page-field": true, "aria-label": state.way === "ask" ? "Question" : "Search", placeholder: state.way === "ask" ? "Ask a question" : "Search by meaning and by words", autocomplete: "off", spellcheck: false, value: text, onInput: (event) => setText(event.currentTarget.value) }), _jsx(Button, { kind: "primary", type: "submit", children: state.way === "ask" ? "Ask" : "Search" })] }), _jsxs("div", { class: "search-with", children: [_jsx(Segmented, { label: "What to do with the words", value: state.way, choices: [
                            { value: "ask", label: "Ask", title: "Read the nearest passages and answer from them" },
                            { value: "search", label: "Search", title: "Find passages" },
                        ], onChange: (way) => setQuery({ as: way === "search" ? way : null }) }), _jsxs("span", { class: "search-in", children: [_jsx("span", { "aria-hidden": "true", children: "in" }), _jsx(Select, { label: "Collection", bare: true, value: collection.name, choices: found.map((one) => ({ value: one.name, label: one.kind === "logs" ? `${one.name} (logs)` : one.name })), onChange: (name) => {
                                    remember(name);
                                    setQuery({ collection: name, where: [] });
                                } })] }), children && _jsx("span", { class: "search-more", children: children })] })] }));
}
function NoCollection({ name, found }) {
    const first = found[0];
    return (_jsx(Page, { title: "Search", children: name === null || first === undefined ? (_jsxs(Empty, { icon: "collections", title: "There is no collection yet", children: [_jsx("p", { children: "A collection is made with its first documents:" }), _jsx("code", { children: "verso ingest FILE --collection notes" })] })) : (_jsxs(Empty, { icon: "collections", title: `There is no collection “${name}”`, children: [_jsx("p", { children: "It was deleted, or your key does not see it." }), _jsxs(Button, { onClick: () => setQuery({ collection: first.name, where: [] }), children: ["Search in ", first.name] })] })) }));
}
