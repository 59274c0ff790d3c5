/** Lines of a log collection: read page by page as a stream, and followed as they are accepted. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type ApiRequest, type Problem, address, problemFrom, reconnected, send } from "../../api.js";
import { follow } from "../../events.js";
import { fromBase64 } from "../../text.js";

export interface LogLine {
  id: string;
  /** RFC 3339; of a plain line that was just accepted it is not known yet. */
  time?: string;
  arrived?: string;
  text?: string;
  text_base64?: string;
  labels?: Record<string, string>;
  attributes?: Record<string, unknown>;
  time_from?: string;
  score?: number;
  statement?: string;
  before?: LogLine[];
  after?: LogLine[];
}

/** Lines that were accepted and are not stored yet. */
export interface Waiting {
  lines?: number;
  oldest_s?: number | null;
}

interface Row extends LogLine {
  next_cursor?: string;
  waiting?: Waiting;
  error?: { code: string; detail: string; retryable?: boolean };
}

const FIRST_PAGE = 200;
const PAGE = 5000;
const LIVE_LINES = 5000;
const LIVE_BEFORE = 100;

/** Return a line's text; bytes that are no UTF-8 stand as replacement characters. */
export function textOf(line: LogLine): string {
  if (line.text_base64 === undefined) return line.text ?? "";
  return new TextDecoder("utf-8").decode(fromBase64(line.text_base64));
}

/** Read a page; `onLines` gets its lines as they come. Returns where the next page begins. */
async function readPage(
  request: ApiRequest,
  signal: AbortSignal,
  onLines: (lines: LogLine[]) => void,
): Promise<{ cursor: string | null; waiting: Waiting | null }> {
  const response = await send(request, { signal });
  const end: { cursor: string | null; waiting: Waiting | null } = { cursor: null, waiting: null };
  const take = (texts: string[]) => {
    const lines: LogLine[] = [];
    for (const text of texts) {
      if (text === "") continue;
      const row = JSON.parse(text) as Row;
      if (row.error !== undefined) throw new StreamError(row.error);
      if (row.id !== undefined) lines.push(row);
      end.cursor = row.next_cursor ?? end.cursor;
      end.waiting = row.waiting ?? end.waiting;
    }
    if (lines.length > 0) onLines(lines);
  };
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const part = await reader?.read();
    if (part === undefined || part.done) break;
    const texts = (rest + part.value).split("\n");
    rest = texts.pop() ?? "";
    take(texts);
  }
  take([rest]);
  return end;
}

/** A fault in the middle of a stream, whose status has been sent already. */
class StreamError extends Error {
  constructor(readonly fault: { code: string; detail: string }) {
    super(`${fault.detail} (${fault.code})`);
  }
}

export interface Lines {
  lines: readonly LogLine[];
  /** Whether all lines that there are have been read. */
  complete: boolean;
  loading: boolean;
  problem: Problem | undefined;
  waiting: Waiting | null;
  more: () => void;
  reload: () => void;
}

/**
 * Lines in order, one page after the other.
 *
 * @param body of `POST /v1/logs/query`, without limit and cursor; null reads nothing.
 */
export function useLines(body: Record<string, unknown> | null): Lines {
  const key = body === null ? null : JSON.stringify(body);
  const [round, setRound] = useState(0);
  const [, draw] = useState(0);
  const state = useRef(emptyState());
  const back = reconnected.value;

  useEffect(() => {
    const own = emptyState();
    state.current = own;
    draw((before) => before + 1);
    if (key !== null) void read(own, key, draw);
    return () => own.control.abort();
  }, [key, round, back]);

  const more = useCallback(() => {
    const own = state.current;
    if (key !== null && !own.loading && own.cursor !== null && own.problem === undefined) void read(own, key, draw);
  }, [key]);
  const { lines, loading, problem, waiting, cursor } = state.current;
  const reload = useCallback(() => setRound((before) => before + 1), []);
  return { lines, complete: cursor === null && !loading && key !== null, loading, problem, waiting, more, reload };
}

interface ReadState {
  lines: LogLine[];
  cursor: string | null;
  loading: boolean;
  problem: Problem | undefined;
  waiting: Waiting | null;
  control: AbortController;
}

function emptyState(): ReadState {
  return { lines: [], cursor: null, loading: false, problem: undefined, waiting: null, control: new AbortController() };
}

async function read(own: ReadState, key: string, draw: (step: (before: number) => number) => void): Promise<void> {
  const show = () => draw((before) => before + 1);
  own.loading = true;
  show();
  const begins = own.lines.length === 0;
  const body = { ...(JSON.parse(key) as object), limit: begins ? FIRST_PAGE : PAGE, ...(own.cursor === null ? {} : { cursor: own.cursor }) };
  try {
    const end = await readPage({ method: "POST", path: "/v1/logs/query", body }, own.control.signal, (lines) => {
      for (const line of lines) own.lines.push(line);
      show();
    });
    own.cursor = end.cursor;
    own.waiting = end.waiting;
  } catch (error) {
    if (own.control.signal.aborted) return;
    own.problem = problemFrom(error);
  }
  own.loading = false;
  show();
}

export interface Tail {
  lines: readonly LogLine[];
  /** Lines that were left out of this page, as it shows no more than so many. */
  dropped: number;
  /** Lines that the platform had dropped before they could be sent; null: unknown how many. */
  missed: number | null;
  state: "connecting" | "open" | "lost";
  problem: Problem | undefined;
}

/**
 * Lines as they are accepted, behind the newest stored ones; the oldest first.
 *
 * @param request of `GET /v1/logs/tail`; null follows nothing.
 * @param stored body of a query of the newest stored lines.
 * @param paused keep what is shown; what comes is shown afterwards.
 */
export function useTail(request: ApiRequest | null, stored: Record<string, unknown>, paused: boolean): Tail {
  const key = request === null ? null : address(request);
  const [shown, setShown] = useState<Tail>(emptyTail());
  const held = useRef(paused);
  held.current = paused;
  const flush = useRef<() => void>(() => undefined);

  useEffect(() => {
    setShown(emptyTail());
    if (key === null || request === null) return undefined;
    const control = new AbortController();
    const newest = { ...stored, order: "newest", limit: LIVE_BEFORE };
    const follower = new Follower(key, newest, control, () => held.current, setShown);
    flush.current = () => follower.show();
    follower.start();
    return () => {
      control.abort();
      follower.close();
    };
  }, [key]);
  useEffect(() => {
    if (!paused) flush.current();
  }, [paused]);
  return shown;
}

function emptyTail(): Tail {
  return { lines: [], dropped: 0, missed: 0, state: "connecting", problem: undefined };
}

/** One connection to the live tail; what comes within a frame is shown together. */
class Follower {
  private lines: LogLine[] = [];
  private readonly known = new Set<string>();
  private dropped = 0;
  private missed: number | null = 0;
  private state: Tail["state"] = "connecting";
  private problem: Problem | undefined;
  private end = () => {};
  private frame = 0;

  constructor(
    private readonly url: string,
    private readonly newest: Record<string, unknown>,
    private readonly control: AbortController,
    private readonly paused: () => boolean,
    private readonly update: (tail: Tail) => void,
  ) {}

  start(): void {
    this.listen();
    void this.insertStored(undefined);
  }

  /** Insert the newest stored lines that are not shown yet behind a line, or first; returns how many there were. */
  private async insertStored(behind: LogLine | undefined): Promise<number> {
    const stored: LogLine[] = [];
    try {
      await readPage({ method: "POST", path: "/v1/logs/query", body: this.newest }, this.control.signal, (lines) => stored.push(...lines));
    } catch {
      return 0; // the tail itself says what is wrong
    }
    const fresh = stored.reverse().filter((line) => !this.known.has(line.id));
    for (const line of fresh) this.known.add(line.id);
    this.lines.splice(behind === undefined ? 0 : this.lines.indexOf(behind) + 1, 0, ...fresh);
    this.show();
    return fresh.length;
  }

  /** Take lines that the platform had dropped from those that it has stored; what is not among these is missed. */
  private async fill(gap: number | null): Promise<void> {
    const found = await this.insertStored(this.lines.at(-1));
    this.missed = this.missed === null || gap === null ? null : this.missed + Math.max(0, gap - found);
    this.show();
  }

  close(): void {
    this.end();
    cancelAnimationFrame(this.frame);
  }

  private listen(): void {
    const soon = () => {
      cancelAnimationFrame(this.frame);
      this.frame = requestAnimationFrame(() => this.show());
    };
    this.end = follow(this.url, {
      resumes: true,
      events: {
        position: () => {
          this.state = "open";
          soon();
        },
        line: (data) => {
          this.state = "open";
          this.add(JSON.parse(data) as LogLine);
          soon();
        },
        gap: (data) => {
          this.state = "open";
          void this.fill((JSON.parse(data) as { lines: number | null }).lines);
          soon();
        },
      },
      onLost: (problem) => {
        this.state = "lost";
        this.problem = problem;
        soon();
      },
    });
  }

  private add(line: LogLine): void {
    if (this.known.has(line.id)) return;
    this.known.add(line.id);
    this.lines.push(line);
    if (this.lines.length > LIVE_LINES + 500 && !this.paused()) {
      for (const old of this.lines.splice(0, this.lines.length - LIVE_LINES)) {
        this.known.delete(old.id);
        this.dropped += 1;
      }
    }
  }

  show(): void {
    if (this.control.signal.aborted) return;
    if (this.paused() && this.problem === undefined) return;
    const { dropped, missed, state, problem } = this;
    this.update({ lines: [...this.lines], dropped, missed, state, problem });
  }
}
