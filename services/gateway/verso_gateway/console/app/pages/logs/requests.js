/** The requests of the logs page, and the same as calls of the Python client. */
import { python } from "../../components/CodeSamples.js";
import { containsOf, filterOf, newSince, whereQuery } from "./state.js";
/** Intervals of sparklines: two of the volume's are one, so that both have the same edges. */
const TOGETHER = 2;
/** Return the body that reads the lines, without limit and cursor. */
export function queryBody(state, bounds) {
    const body = { collection: state.collection };
    if (bounds.from !== null)
        body["from"] = bounds.from;
    if (bounds.to !== null)
        body["to"] = bounds.to;
    const filter = filterOf(state.where);
    if (filter !== undefined)
        body["filter"] = filter;
    if (state.statement !== null)
        body["statement"] = state.statement;
    if (state.text !== "" && state.meaning)
        body["question"] = state.text;
    else {
        body["order"] = state.oldest ? "oldest" : "newest";
        if (state.text !== "")
            body["contains"] = state.text;
    }
    return body;
}
/** Return the request that lists statements. */
export function statementsRequest(state, bounds, nowS, intervalS) {
    return {
        method: "GET",
        path: "/v1/logs/statements",
        query: {
            ...whereQuery(state, bounds),
            new_since: newSince(state, bounds, nowS),
            interval_s: intervalS === undefined ? null : intervalS * TOGETHER,
            limit: 200,
        },
    };
}
/** Return the request that counts the lines of the statement that is chosen. */
export function ofStatementRequest(state, bounds, intervalS) {
    if (state.statement === null || intervalS === undefined)
        return null;
    return {
        method: "GET",
        path: "/v1/logs/statements",
        query: { ...whereQuery(state, bounds), statement: state.statement, interval_s: intervalS },
    };
}
/** Return the request that follows lines as they are accepted. */
export function tailRequest(state) {
    const filter = filterOf(state.where);
    return {
        method: "GET",
        path: "/v1/logs/tail",
        query: {
            collection: state.collection,
            filter: filter === undefined ? null : JSON.stringify(filter),
            contains: state.text === "" ? null : state.text,
            start: "unstored",
        },
    };
}
/** Return the requests behind what is seen. */
export function samplesOf(state, bounds, nowS, intervalS) {
    const where = pythonWhere(state, bounds);
    if (state.live) {
        const filter = filterOf(state.where);
        const fields = { collection: state.collection, ...(filter ? { filter } : {}), ...(state.text ? { contains: state.text } : {}) };
        return [
            {
                title: "Follow lines as they are accepted",
                request: tailRequest(state),
                python: `from verso_client import TailRequest\n\nfor event in client.tail(TailRequest.model_validate(${python(fields)})):\n    print(event)`,
            },
        ];
    }
    const by = state.by === "none" ? {} : { by: state.by };
    const contains = containsOf(state);
    const text = contains === null ? {} : { contains };
    const samples = [
        {
            title: "Count lines over time",
            request: { method: "GET", path: "/v1/logs/volume", query: { ...whereQuery(state, bounds), ...text, ...by } },
            python: `from verso_client import VolumeRequest\n\nprint(client.log_volume(VolumeRequest.model_validate(${python({ ...where, ...text, ...by })})))`,
        },
    ];
    if (state.view === "lines") {
        const body = { ...queryBody(state, bounds), limit: 1000 };
        samples.push({
            title: "Read the lines",
            request: { method: "POST", path: "/v1/logs/query", body },
            python: `from verso_client import LinesRequest\n\nfor data in client.lines(LinesRequest.model_validate(${python(body)})):\n    print(data.decode(), end="")`,
        });
    }
    else {
        const since = newSince(state, bounds, nowS);
        const fields = { ...where, ...(since === null ? {} : { new_since: since }), ...(intervalS ? { interval_s: intervalS * TOGETHER } : {}) };
        samples.push({
            title: since === null ? "List the statements" : "List the statements that are new",
            request: statementsRequest(state, bounds, nowS, intervalS),
            python: `from verso_client import StatementsRequest\n\nprint(client.log_statements(StatementsRequest.model_validate(${python(fields)})))`,
        });
    }
    return samples;
}
function pythonWhere(state, bounds) {
    const filter = filterOf(state.where);
    return {
        collection: state.collection,
        ...(bounds.from === null ? {} : { from: bounds.from }),
        ...(bounds.to === null ? {} : { to: bounds.to }),
        ...(filter === undefined ? {} : { filter }),
    };
}
