/** The list of jobs, kept as the platform has it: read once, then followed by its events. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { address, call, problemFrom, reconnected } from "../../api.js";
import { follow } from "../../events.js";
import { hasEnded } from "./types.js";
const PAGE = 50;
/** Return the request that lists jobs. */
export function listRequest(filter, cursor) {
    const query = { status: filter.statuses, kind: filter.kinds, reads: filter.reads || null, limit: PAGE, cursor: cursor ?? null };
    return { method: "GET", path: "/v1/jobs", query };
}
/** Return the request that follows jobs. A job that leaves a state is told of as well: none is asked for. */
export function eventsRequest(filter) {
    return { method: "GET", path: "/v1/jobs/events", query: { kind: filter.kinds, reads: filter.reads || null } };
}
export function useJobs(filter) {
    const key = JSON.stringify(filter);
    const [, draw] = useState(0);
    const live = useRef(null);
    const back = reconnected.value;
    useEffect(() => {
        const own = new LiveJobs(JSON.parse(key), () => draw((before) => before + 1));
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
    filter;
    update;
    jobs;
    problem;
    loading = true;
    connection = "connecting";
    cursor = null;
    end = () => { };
    control = new AbortController();
    frame = 0;
    round = 0;
    constructor(filter, update) {
        this.filter = filter;
        this.update = update;
    }
    start() {
        void this.list();
        this.end = follow(address(eventsRequest(this.filter)), {
            events: {
                reset: () => {
                    this.connection = "live";
                    void this.list(); // what changed before this moment is no event
                },
                job: (data) => this.take(JSON.parse(data)),
            },
            onLost: (problem) => {
                this.connection = "lost";
                this.problem = problem ?? this.problem;
                this.soon();
            },
        });
    }
    close() {
        this.control.abort();
        this.end();
        cancelAnimationFrame(this.frame);
    }
    /** Read the newest jobs; older ones that are shown stay. */
    async list() {
        this.loading = true;
        this.round += 1;
        const round = this.round;
        this.soon();
        try {
            const page = await call(listRequest(this.filter), { signal: this.control.signal });
            if (round !== this.round)
                return;
            const shown = new Map(this.jobs?.map((job) => [job.id, job]));
            const newest = page.jobs.map((job) => later(job, shown.get(job.id)));
            for (const job of newest)
                shown.delete(job.id);
            const last = newest[newest.length - 1];
            const older = [...shown.values()].filter((job) => last !== undefined && madeBefore(job, last));
            if (older.length === 0 || page.next_cursor === null)
                this.cursor = page.next_cursor;
            this.jobs = page.next_cursor === null ? newest : [...newest, ...older];
            this.problem = undefined;
        }
        catch (error) {
            if (this.control.signal.aborted)
                return;
            this.problem = problemFrom(error);
        }
        this.loading = false;
        this.soon();
    }
    /** Read the next page. */
    async more() {
        if (this.cursor === null || this.loading)
            return;
        this.loading = true;
        this.soon();
        try {
            const page = await call(listRequest(this.filter, this.cursor), { signal: this.control.signal });
            const known = new Set(this.jobs?.map((job) => job.id));
            this.jobs = [...(this.jobs ?? []), ...page.jobs.filter((job) => !known.has(job.id))];
            this.cursor = page.next_cursor;
        }
        catch (error) {
            if (this.control.signal.aborted)
                return;
            this.problem = problemFrom(error);
        }
        this.loading = false;
        this.soon();
    }
    /** Put a job that is new or has changed in its place. */
    take(job) {
        const jobs = this.jobs;
        if (jobs === undefined)
            return;
        const wanted = this.filter.statuses.length === 0 || this.filter.statuses.includes(job.status);
        const at = jobs.findIndex((one) => one.id === job.id);
        if (at >= 0) {
            // One that leaves the states that are shown stays in sight with its new one, until the list is read anew.
            jobs[at] = later(job, jobs[at]);
        }
        else if (wanted) {
            const place = jobs.findIndex((one) => madeBefore(one, job));
            jobs.splice(place < 0 ? jobs.length : place, 0, job);
        }
        this.soon();
    }
    soon() {
        cancelAnimationFrame(this.frame);
        this.frame = requestAnimationFrame(() => {
            if (this.jobs !== undefined)
                this.jobs = [...this.jobs];
            this.update();
        });
    }
}
function madeBefore(one, other) {
    return (one.created ?? "") < (other.created ?? "");
}
/** Return the later of two states of a job: an answer may be overtaken by an event. */
function later(job, known) {
    if (known === undefined || known.status === "dead")
        return job; // it may have been replayed
    const stale = hasEnded(known.status) ? !hasEnded(job.status) : job.slices_done < known.slices_done;
    return stale ? known : job;
}
/** Follow one job that runs; null follows none. */
export function useProgress(jobId) {
    const [shown, setShown] = useState(null);
    useEffect(() => {
        setShown(null);
        if (jobId === null)
            return undefined;
        const take = (text) => {
            const data = JSON.parse(text);
            setShown({ ...data, progress: data.progress ?? null });
        };
        return follow(`/v1/jobs/${encodeURIComponent(jobId)}/events`, { events: { state: take, progress: take }, last: "end" });
    }, [jobId]);
    return shown;
}
