/** `useRequest`: the answer to a request while a component shows it. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiRequest, type Options, type Problem, call, problemFrom, reconnected } from "./api.js";

export interface Answer<T> {
  /** The last answer; it stays while the next one is on its way. */
  data: T | undefined;
  problem: Problem | undefined;
  /** Whether an answer is awaited. */
  loading: boolean;
  /** How long the last answer took, milliseconds. */
  tookMs: number | undefined;
  reload: () => void;
}

/**
 * Send a request when it changes, and on `reload`; null sends nothing.
 *
 * @param request the request; compared by its JSON.
 * @param everyS seconds after which it is sent again, while the page is visible.
 */
export function useRequest<T>(
  request: ApiRequest | null,
  { everyS, ...options }: Options & { everyS?: number } = {},
): Answer<T> {
  const key = request === null ? null : JSON.stringify(request);
  const [state, setState] = useState<Omit<Answer<T>, "reload"> & { key: string | null }>({
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
    call<T>(request, { ...options, signal: given.signal })
      .then((data) => {
        const tookMs = performance.now() - began;
        setState({ data, problem: undefined, loading: false, tookMs, key });
      })
      .catch((error: unknown) => {
        if (given.signal.aborted) return;
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
    if (everyS === undefined || key === null) return undefined;
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") again();
    }, everyS * 1000);
    return () => clearInterval(timer);
  }, [key, everyS]);

  return { ...state, reload: again };
}
