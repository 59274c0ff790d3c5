/** The list of jobs, kept as the platform has it: read once, then followed by its events. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type ApiRequest, type Problem, address, call, problemFrom, reconnected } from "../../api.js";
import { follow } from "../../events.js";
import { type Job, type JobPage, type Status, hasEnded } from "./types.js";

export interface JobsFilter {
  statuses: readonly Status[];
  kinds: readonly string[];
  reads: boolean;
}

export type Connection = "connecting" | "live" | "lost";

export interface JobsAnswer {
  jobs: readonly Job[] | undefined;
  problem: Problem | undefined;
  loading: boolean;
  connection: Connection;
  /** Whether older jobs may follow. */
  hasMore: boolean;
  more: () => void;
  reload: () => void;
}

const PAGE = 50;

/** Return the request that lists jobs. */
export function listRequest(filter: JobsFilter, cursor?: string): ApiRequest {
  const query = { status: filter.statuses, kind: filter.kinds, reads: filter.reads || null, limit: PAGE, cursor: cursor ?? null };
  return { method: "GET", path: "/v1/jobs", query };
}

/** Return the request that follows jobs. A job that leaves a state is told of as well: none is asked for. */
export function eventsRequest(filter: JobsFilter): ApiRequest {
  return { method: "GET", path: "/v1/jobs/events", query: { kind: filter.kinds, reads: filter.reads || null } };
}

export function useJobs(filter: JobsFilter): JobsAnswer {
  const key = JSON.stringify(filter);
  const [, draw] = useState(0);
  const live = useRef<LiveJobs | null>(null);
  const back = reconnected.value;
  useEffect(() => {
    const own = new LiveJobs(JSON.parse(key) as JobsFilter, () => draw((before) => before + 1));
    live.current = own;
    own.start();
    return () => own.close();
  }, [key, back]);
  const more = useCallback(() => void live.current?.more(), []);
  const reload = useCallback(() => void live.current?.list(), []);
  const own = live.current;
  return {
    jobs: own?.jobs,
    problem: own?.problem,
    loading: own?.loading ?? true,
    connection: own?.connection ?? "connecting",
    hasMore: own?.cursor != null,
    more,
    reload,
  };
}

/** One list and its events. */
class LiveJobs {
  jobs: Job[] | undefined;
  problem: Problem | undefined;
  loading = true;
  connection: Connection = "connecting";
  cursor: string | null = null;
  private end = () => {};
  private readonly control = new AbortController();
  private frame = 0;
  private round = 0;

  constructor(
    private readonly filter: JobsFilter,
    private readonly update: () => void,
  ) {}

  start(): void {
    void this.list();
    this.end = follow(address(eventsRequest(this.filter)), {
      events: {
        reset: () => {
          this.connection = "live";
          void this.list(); // what changed before this moment is no event
        },
        job: (data) => this.take(JSON.parse(data) as Job),
      },
      onLost: (problem) => {
        this.connection = "lost";
        this.problem = problem ?? this.problem;
        this.soon();
      },
    });
  }

  close(): void {
    this.control.abort();
    this.end();
    cancelAnimationFrame(this.frame);
  }

  /** Read the newest jobs; older ones that are shown stay. */
  async list(): Promise<void> {
    this.loading = true;
    this.round += 1;
    const round = this.round;
    this.soon();
    try {
      const page = await call<JobPage>(listRequest(this.filter), { signal: this.control.signal });
      if (round !== this.round) return;
      const shown = new Map(this.jobs?.map((job) => [job.id, job]));
      const newest = page.jobs.map((job) => later(job, shown.get(job.id)));
      for (const job of newest) shown.delete(job.id);
      const last = newest[newest.length - 1];
      const older = [...shown.values()].filter((job) => last !== undefined && madeBefore(job, last));
      if (older.length === 0 || page.next_cursor === null) this.cursor = page.next_cursor;
      this.jobs = page.next_cursor === null ? newest : [...newest, ...older];
      this.problem = undefined;
    } catch (error) {
      if (this.control.signal.aborted) return;
      this.problem = problemFrom(error);
    }
    this.loading = false;
    this.soon();
  }

  /** Read the next page. */
  async more(): Promise<void> {
    if (this.cursor === null || this.loading) return;
    this.loading = true;
    this.soon();
    try {
      const page = await call<JobPage>(listRequest(this.filter, this.cursor), { signal: this.control.signal });
      const known = new Set(this.jobs?.map((job) => job.id));
      this.jobs = [...(this.jobs ?? []), ...page.jobs.filter((job) => !known.has(job.id))];
      this.cursor = page.next_cursor;
    } catch (error) {
      if (this.control.signal.aborted) return;
      this.problem = problemFrom(error);
    }
    this.loading = false;
    this.soon();
  }

  /** Put a job that is new or has changed in its place. */
  private take(job: Job): void {
    const jobs = this.jobs;
    if (jobs === undefined) return;
    const wanted = this.filter.statuses.length === 0 || this.filter.statuses.includes(job.status);
    const at = jobs.findIndex((one) => one.id === job.id);
    if (at >= 0) {
      // One that leaves the states that are shown stays in sight with its new one, until the list is read anew.
      jobs[at] = later(job, jobs[at]);
    } else if (wanted) {
      const place = jobs.findIndex((one) => madeBefore(one, job));
      jobs.splice(place < 0 ? jobs.length : place, 0, job);
    }
    this.soon();
  }

  private soon(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      if (this.jobs !== undefined) this.jobs = [...this.jobs];
      this.update();
    });
  }
}

function madeBefore(one: Job, other: Job): boolean {
  return (one.created ?? "") < (other.created ?? "");
}

/** Return the later of two states of a job: an answer may be overtaken by an event. */
function later(job: Job, known: Job | undefined): Job {
  if (known === undefined || known.status === "dead") return job; // it may have been replayed
  const stale = hasEnded(known.status) ? !hasEnded(job.status) : job.slices_done < known.slices_done;
  return stale ? known : job;
}

/** A worker's last report on a running job, and its state. */
export interface Progress {
  status: Status;
  done: number;
  progress: Record<string, unknown> | null;
}

/** Follow one job that runs; null follows none. */
export function useProgress(jobId: string | null): Progress | null {
  const [shown, setShown] = useState<Progress | null>(null);
  useEffect(() => {
    setShown(null);
    if (jobId === null) return undefined;
    const take = (text: string) => {
      const data = JSON.parse(text) as Progress;
      setShown({ ...data, progress: data.progress ?? null });
    };
    return follow(`/v1/jobs/${encodeURIComponent(jobId)}/events`, { events: { state: take, progress: take }, last: "end" });
  }, [jobId]);
  return shown;
}
