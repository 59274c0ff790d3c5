/**
 * Server-sent events that go on: a browser connects again by itself where the network failed, but not
 * where a gateway answered with an error. Then this asks again, unless the answer is about the caller.
 */

import { problemFrom, send, type Problem } from "./api.js";

export interface Handlers {
  /** What to do with the data of each kind of event. */
  events: Record<string, (data: string) => void>;
  /** Called when the connection is lost; with a problem if it will not come back. */
  onLost?: (problem?: Problem) => void;
  /** An event after which nothing follows. */
  last?: string;
  /** Whether the address takes `last_event_id`, the event to go on after. */
  resumes?: boolean;
}

const AGAIN_MS = 2000;
const PROBE_MS = 2000;

/** Follow events of an address; returns what ends it. */
export function follow(url: string, { events, onLost, last, resumes = false }: Handlers): () => void {
  let source: EventSource | null = null;
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
        const { data, lastEventId } = event as MessageEvent<string>;
        lastId = lastEventId;
        take(data);
      });
    }
    if (last !== undefined) source.addEventListener(last, end);
    source.addEventListener("error", () => {
      if (ended) return;
      onLost?.();
      if (source?.readyState === EventSource.CLOSED) timer = window.setTimeout(() => void again(), AGAIN_MS);
    });
  };
  const again = async () => {
    const problem = await refusal(url);
    if (ended) return;
    if (problem !== null && problem.status >= 400 && problem.status < 500 && problem.status !== 429) onLost?.(problem);
    else open();
  };
  open();
  return end;
}

/** Return the address of the events after one: only a source that connects again by itself says where it was. */
function after(url: string, id: string): string {
  return id === "" ? url : `${url}${url.includes("?") ? "&" : "?"}last_event_id=${encodeURIComponent(id)}`;
}

/** Return why the events are refused, which their connection does not say; null if they are not. */
async function refusal(url: string): Promise<Problem | null> {
  const probe = new AbortController();
  const timer = setTimeout(() => probe.abort(), PROBE_MS);
  try {
    const [path = "", query = ""] = url.split("?");
    await send({ method: "GET", path, query: lists(new URLSearchParams(query)) }, { signal: probe.signal });
    return null;
  } catch (error) {
    return probe.signal.aborted ? null : problemFrom(error);
  } finally {
    clearTimeout(timer);
    probe.abort();
  }
}

function lists(query: URLSearchParams): Record<string, string[]> {
  return Object.fromEntries([...new Set(query.keys())].map((name) => [name, query.getAll(name)]));
}
