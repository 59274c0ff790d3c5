/** Follow a job by its events: its state and progress while it runs. */

import { useEffect, useState } from "preact/hooks";

export type JobStatus = "queued" | "running" | "succeeded" | "failed" | "cancelled" | "expired" | "dead";

/** What a job that takes minutes says of itself. */
export interface JobProgress {
  stage?: string;
  /** Part of the work that is done, 0 to 1. */
  share?: number;
  metrics?: Record<string, number>;
}

export interface JobState {
  status: JobStatus;
  items: number;
  ok: number;
  err: number;
  done: number;
  slices: number;
  progress?: JobProgress;
}

export interface Followed {
  state: JobState | undefined;
  /** All that the job has said of its progress, oldest first. */
  progress: readonly JobProgress[];
  ended: boolean;
}

const NOTHING: Followed = { state: undefined, progress: [], ended: false };

/** Return what a job says, as it says it; null follows nothing. */
export function useJob(jobId: string | null): Followed {
  const [found, setFound] = useState<Followed>(NOTHING);
  useEffect(() => {
    setFound(NOTHING);
    return jobId === null ? undefined : follow(jobId, setFound);
  }, [jobId]);
  return found;
}

/** Call back with every event of a job; return what ends that. A lost connection is made again. */
export function follow(jobId: string, onChange: (found: Followed) => void): () => void {
  const source = new EventSource(`/v1/jobs/${encodeURIComponent(jobId)}/events`);
  let found = NOTHING;
  const take = (event: MessageEvent<string>) => {
    const state = JSON.parse(event.data) as JobState;
    const progress = state.progress === undefined ? found.progress : [...found.progress, state.progress];
    found = { state, progress, ended: isOver(state.status) };
    onChange(found);
  };
  source.addEventListener("state", take);
  source.addEventListener("progress", take);
  source.addEventListener("end", () => {
    source.close();
    found = { ...found, ended: true };
    onChange(found);
  });
  return () => source.close();
}

/** Whether a job in this state has ended. */
export function isOver(status: JobStatus): boolean {
  return status !== "queued" && status !== "running";
}
