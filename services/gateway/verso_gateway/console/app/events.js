/**
 * Server-sent events that go on: a browser connects again by itself where the network failed, but not
 * where a gateway answered with an error. Then this asks again, unless the answer is about the caller.
 */
import { problemFrom, send } from "./api.js";
const AGAIN_MS = 2000;
const PROBE_MS = 2000;
/** Follow events of an address; returns what ends it. */
export function follow(url, { events, onLost, last, resumes = false }) {
    let source = null;
    let timer = 0;
    let ended = false;
    let lastId = "";
    const end = () => {
        ended = true;
        clearTimeout(timer);
        source?.close();
    };
    const open = () => {
        source = new EventSource(resumes ? after(url, lastId) : url);
        for (const [name, take] of Object.entries(events)) {
            source.addEventListener(name, (event) => {
                const { data, lastEventId } = event;
                lastId = lastEventId;
                take(data);
            });
        }
        if (last !== undefined)
            source.addEventListener(last, end);
        source.addEventListener("error", () => {
            if (ended)
                return;
            onLost?.();
            if (source?.readyState === EventSource.CLOSED)
                timer = window.setTimeout(() => void again(), AGAIN_MS);
        });
    };
    const again = async () => {
        const problem = await refusal(url);
        if (ended)
            return;
        if (problem !== null && problem.status >= 400 && problem.status < 500 && problem.status !== 429)
            onLost?.(problem);
        else
            open();
    };
    open();
    return end;
}
/** Return the address of the events after one: only a source that connects again by itself says where it was. */
function after(url, id) {
    return id === "" ? url : `${url}${url.includes("?") ? "&" : "?"}last_event_id=${encodeURIComponent(id)}`;
}
/** Return why the events are refused, which their connection does not say; null if they are not. */
async function refusal(url) {
    const probe = new AbortController();
    const timer = setTimeout(() => probe.abort(), PROBE_MS);
    try {
        const [path = "", query = ""] = url.split("?");
        await send({ method: "GET", path, query: lists(new URLSearchParams(query)) }, { signal: probe.signal });
        return null;
    }
    catch (error) {
        return probe.signal.aborted ? null : problemFrom(error);
    }
    finally {
        clearTimeout(timer);
        probe.abort();
    }
}
function lists(query) {
    return Object.fromEntries([...new Set(query.keys())].map((name) => [name, query.getAll(name)]));
}
