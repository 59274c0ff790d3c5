import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Values of metadata with how many documents have them; a click makes one a condition. */
import { useRef } from "preact/hooks";
import { ErrorState, Loading } from "../../components/States.js";
import { conditionText, filterOf, includes, scalarsOf } from "../../filters.js";
import { count } from "../../format.js";
import { useRequest } from "../../request.js";
import { setQuery } from "../../router.js";
const FIELDS = 5;
const VALUES = 6;
/**
 * Each field that has a condition is counted without its own, so that its other values stay to be
 * chosen; all other fields are counted together.
 */
export function Facets({ collection, state, hits }) {
    const fields = useFields(collection, hits);
    const held = fields.filter((field) => state.conditions.some((one) => one.field === field));
    const free = fields.filter((field) => !held.includes(field));
    const groups = [...held.map((field) => [field]), ...(free.length > 0 ? [free] : [])];
    return (_jsx("div", { class: "facets", children: groups.map((group) => (_jsx(Group, { collection: collection, state: state, fields: group, order: fields }, group === free ? "" : group[0]))) }));
}
function Group({ collection, state, fields, order }) {
    const filter = filterOf(state.conditions.filter((one) => fields.length > 1 || one.field !== fields[0]), state.since, state.until);
    const answer = useRequest({
        method: "POST",
        path: `/v1/collections/${collection.name}/facets`,
        body: { fields, limit: VALUES, ...(filter === undefined ? {} : { filter }) },
    });
    if (answer.problem)
        return _jsx(ErrorState, { problem: answer.problem, retry: answer.reload });
    if (answer.data === undefined)
        return _jsx(Loading, { lines: 4, label: "Counting values" });
    return (_jsx(_Fragment, { children: answer.data.facets
            .filter((facet) => facet.values.length > 0)
            .map((facet) => (_jsxs("section", { class: "facet", style: { order: order.indexOf(facet.field) }, children: [_jsxs("h2", { children: [facet.field, " ", _jsx("span", { class: "note", children: count(facet.distinct) })] }), _jsx("ul", { children: facet.values.map(({ value, documents }) => {
                        const one = { field: facet.field, value };
                        return (_jsx("li", { children: _jsxs("label", { children: [_jsx("input", { type: "checkbox", checked: includes(state.conditions, one), onChange: () => toggle(state.conditions, one) }), _jsx("span", { class: "facet-value", title: String(value), children: String(value) }), _jsx("span", { class: "facet-count", children: count(documents) })] }) }, String(value)));
                    }) })] }, facet.field))) }));
}
/** Return the fields to count: those with an index, then those that hits have most often. */
function useFields(collection, hits) {
    const kept = useRef({ collection: "", fields: [] });
    const seen = new Map();
    const often = new Map();
    for (const { field, value } of hits.flatMap((hit) => scalarsOf(hit.metadata ?? {}))) {
        seen.set(field, (seen.get(field) ?? new Set()).add(String(value)));
        often.set(field, (often.get(field) ?? 0) + 1);
    }
    // a field that names each document alone narrows nothing
    const telling = [...often].filter(([field, times]) => times < 4 || (seen.get(field)?.size ?? 0) < times * 0.8);
    const found = [...Object.keys(collection.indexes), ...telling.sort((a, b) => b[1] - a[1]).map(([field]) => field)];
    // fields stay in their places while the next hits are on their way
    const before = kept.current.collection === collection.name ? kept.current.fields : [];
    kept.current = { collection: collection.name, fields: [...new Set([...before, ...found])].slice(0, FIELDS) };
    return kept.current.fields;
}
function toggle(conditions, one) {
    const others = conditions.filter((other) => other.field !== one.field || other.value !== one.value);
    const next = others.length < conditions.length ? others : [...conditions, one];
    setQuery({ where: next.map(conditionText) });
}
