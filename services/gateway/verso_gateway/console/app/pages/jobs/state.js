/** What the jobs page shows, all of it in the address. */
import { addressOf, place, setQuery } from "../../router.js";
/** States that people look for together. */
export const GROUPS = {
    all: [],
    active: ["queued", "running"],
    succeeded: ["succeeded"],
    failed: ["failed", "cancelled", "expired", "dead"],
    dead: ["dead"],
};
export function jobsState(query = place.value.query) {
    const group = query.get("status") ?? "all";
    return {
        view: query.get("view") === "dead" ? "dead" : "jobs",
        group: group in GROUPS ? group : "all",
        kind: query.get("kind") ?? "",
        reads: query.get("reads") === "true",
        job: query.get("job"),
        code: query.get("code") ?? "",
    };
}
export function setState(change) {
    setQuery(change);
}
/** Return the address of the page with a job open. */
export function addressOfJob(id) {
    const query = {};
    for (const [name, value] of place.value.query)
        (query[name] ??= []).push(value);
    return addressOf("jobs", { ...query, job: id });
}
export function filterOf(state) {
    return { statuses: GROUPS[state.group], kinds: state.kind === "" ? [] : [state.kind], reads: state.reads };
}
