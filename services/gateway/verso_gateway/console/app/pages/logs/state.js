/** What the logs page shows, all of it in the address; and what follows for the API. */
import { addressOf, place, setQuery } from "../../router.js";
/** A range of times, as seconds before now; the first is the default. */
export const RANGES = [
    { value: "", label: "All times", lastS: null },
    { value: "15m", label: "Last 15 minutes", lastS: 900 },
    { value: "1h", label: "Last hour", lastS: 3600 },
    { value: "6h", label: "Last 6 hours", lastS: 21_600 },
    { value: "24h", label: "Last 24 hours", lastS: 86_400 },
    { value: "7d", label: "Last 7 days", lastS: 604_800 },
    { value: "30d", label: "Last 30 days", lastS: 2_592_000 },
];
const TEST = /^([^!=]+)(!?=)(.*)$/su;
/** Read the state out of the address. */
export function logsState(query = place.value.query) {
    const number = (name) => {
        const value = Number.parseFloat(query.get(name) ?? "");
        return Number.isFinite(value) ? value : null;
    };
    const fresh = query.get("new");
    return {
        collection: query.get("collection") ?? "",
        lastS: RANGES.find((one) => one.value === query.get("range"))?.lastS ?? null,
        from: number("from"),
        to: number("to"),
        text: query.get("q") ?? "",
        meaning: query.get("by-meaning") === "true",
        where: query.getAll("where").flatMap((text) => testOf(text) ?? []),
        statement: query.get("statement"),
        by: query.get("by") ?? "level",
        view: query.get("view") === "statements" ? "statements" : "lines",
        oldest: query.get("order") === "oldest",
        fresh: fresh === "range" ? "range" : (RANGES.find((one) => one.value !== "" && one.value === fresh)?.lastS ?? null),
        live: query.get("live") === "true",
        line: query.get("line"),
    };
}
function testOf(text) {
    const found = TEST.exec(text);
    return found === null ? null : { name: found[1] ?? "", not: found[2] === "!=", value: found[3] ?? "" };
}
/** Return a test as the address has it: `host=a`, `level!=debug`. */
export function testText(test) {
    return `${test.name}${test.not ? "!=" : "="}${test.value}`;
}
/** Change the query so that a label's value must be there, must not be there, or does not matter. */
export function setTest(state, name, value, not) {
    const others = state.where.filter((one) => one.name !== name || one.value !== value);
    const tests = not === null ? others : [...others, { name, value, not }];
    change({ where: tests.map(testText) });
}
/** Change what is shown; the line that was open is closed. */
export function change(query, options = {}) {
    setQuery({ line: null, ...query }, options);
}
/** Return the address of this page with an open line. */
export function addressOfLine(line) {
    const query = {};
    for (const [name, value] of place.value.query)
        (query[name] ??= []).push(value);
    return addressOf("logs", { ...query, line });
}
/** Return the filter of label tests: of one label any of its values, of several all. */
export function filterOf(where) {
    const wanted = new Map();
    const parts = [];
    for (const test of where) {
        if (test.not)
            parts.push({ field: test.name, ne: test.value });
        else
            wanted.set(test.name, [...(wanted.get(test.name) ?? []), test.value]);
    }
    for (const [field, values] of wanted) {
        parts.unshift(values.length === 1 ? { field, eq: values[0] ?? "" } : { field, in: values });
    }
    return parts.length > 1 ? { and: parts } : parts[0];
}
/** Return the times that are meant at a moment. */
export function boundsOf(state, nowS) {
    if (state.from !== null || state.to !== null)
        return { from: state.from, to: state.to };
    return state.lastS === null ? { from: null, to: null } : { from: nowS - state.lastS, to: nowS };
}
/** Return since when a statement must have been unseen to be new; null: all statements are meant. */
export function newSince(state, bounds, nowS) {
    if (state.fresh === null)
        return null;
    return state.fresh === "range" ? bounds.from : nowS - state.fresh;
}
/** Return the text that counted lines have; the live tail is counted again and again, without it. */
export function containsOf(state) {
    return state.text === "" || state.meaning || state.live ? null : state.text;
}
/** Return the query parameters that say which lines are meant. */
export function whereQuery(state, bounds) {
    const filter = filterOf(state.where);
    return {
        collection: state.collection,
        from: bounds.from === null ? null : String(bounds.from),
        to: bounds.to === null ? null : String(bounds.to),
        filter: filter === undefined ? null : JSON.stringify(filter),
    };
}
