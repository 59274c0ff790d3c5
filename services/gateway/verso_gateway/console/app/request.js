/** `useRequest`: the answer to a request while a component shows it. */
import { useEffect, useRef, useState } from "preact/hooks";
import { call, problemFrom, reconnected } from "./api.js";
/**
 * Send a request when it changes, and on `reload`; null sends nothing.
 *
 * @param request the request; compared by its JSON.
 * @param everyS seconds after which it is sent again, while the page is visible.
 */
export function useRequest(request, { everyS, ...options } = {}) {
    const key = request === null ? null : JSON.stringify(request);
    const [state, setState] = useState({
        data: undefined,
        problem: undefined,
        loading: key !== null,
        tookMs: undefined,
        key: null,
    });
    const [round, setRound] = useState(0);
    const again = useRef(() => setRound((before) => before + 1)).current;
    const back = reconnected.value;
    useEffect(() => {
        if (request === null) {
            setState({ data: undefined, problem: undefined, loading: false, tookMs: undefined, key });
            return undefined;
        }
        const given = new AbortController();
        const began = performance.now();
        setState((before) => ({ ...before, loading: true }));
        call(request, { ...options, signal: given.signal })
            .then((data) => {
            const tookMs = performance.now() - began;
            setState({ data, problem: undefined, loading: false, tookMs, key });
        })
            .catch((error) => {
            if (given.signal.aborted)
                return;
            setState((before) => ({
                data: before.key === key ? before.data : undefined,
                problem: problemFrom(error),
                loading: false,
                tookMs: undefined,
                key,
            }));
        });
        return () => given.abort();
    }, [key, round, back]);
    useEffect(() => {
        if (everyS === undefined || key === null)
            return undefined;
        const timer = setInterval(() => {
            if (document.visibilityState === "visible")
                again();
        }, everyS * 1000);
        return () => clearInterval(timer);
    }, [key, everyS]);
    return { ...state, reload: again };
}
