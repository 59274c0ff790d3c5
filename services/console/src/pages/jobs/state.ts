/** What the jobs page shows, all of it in the address. */

import { type QueryChange, addressOf, place, setQuery } from "../../router.js";
import type { JobsFilter } from "./live.js";
import type { Status } from "./types.js";

export type Group = "all" | "active" | "succeeded" | "failed" | "dead";

/** States that people look for together. */
export const GROUPS: Record<Group, readonly Status[]> = {
  all: [],
  active: ["queued", "running"],
  succeeded: ["succeeded"],
  failed: ["failed", "cancelled", "expired", "dead"],
  dead: ["dead"],
};

export interface JobsState {
  view: "jobs" | "dead";
  group: Group;
  kind: string;
  reads: boolean;
  /** Id of the job that is open. */
  job: string | null;
  /** Only dead letters of this error. */
  code: string;
}

export function jobsState(query: URLSearchParams = place.value.query): JobsState {
  const group = query.get("status") ?? "all";
  return {
    view: query.get("view") === "dead" ? "dead" : "jobs",
    group: group in GROUPS ? (group as Group) : "all",
    kind: query.get("kind") ?? "",
    reads: query.get("reads") === "true",
    job: query.get("job"),
    code: query.get("code") ?? "",
  };
}

export function setState(change: QueryChange): void {
  setQuery(change);
}

/** Return the address of the page with a job open. */
export function addressOfJob(id: string): string {
  const query: Record<string, string[]> = {};
  for (const [name, value] of place.value.query) (query[name] ??= []).push(value);
  return addressOf("jobs", { ...query, job: id });
}

export function filterOf(state: JobsState): JobsFilter {
  return { statuses: GROUPS[state.group], kinds: state.kind === "" ? [] : [state.kind], reads: state.reads };
}
