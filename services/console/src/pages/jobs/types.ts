/** Answers of the API that the jobs page reads. */

export type Status = "queued" | "running" | "succeeded" | "failed" | "cancelled" | "expired" | "dead";

export interface Fault {
  code: string;
  detail: string;
  retryable?: boolean;
}

export interface Job {
  id: string;
  kind: string;
  status: Status;
  items: number;
  ok: number;
  failed: number;
  slices: number;
  slices_done: number;
  attempts: number;
  urgency: number;
  created: string | null;
  started: string | null;
  finished: string | null;
  deadline: string | null;
  error: Fault | null;
}

export interface JobPage {
  jobs: Job[];
  next_cursor: string | null;
}

/** An item that failed, or `items` from this one on that failed together. */
export interface Failure {
  item: number | null;
  items?: number;
  id?: string;
  chunk?: number;
  error: Fault;
}

export interface FailurePage {
  failures: Failure[];
  next_cursor: string | null;
}

export interface DeadLetter {
  job_id: string;
  slice: number;
  kind: string;
  phase: "work" | "verify";
  items: number;
  bytes: number;
  crashes: number;
  errors: number;
  error: Fault;
  died: string;
}

export interface DeadLetterPage {
  dead_letters: DeadLetter[];
  next_cursor: string | null;
}

export function hasEnded(status: Status): boolean {
  return status !== "queued" && status !== "running";
}

/** What a kind of job does, as a person would say it. */
export function kindText(kind: string): string {
  return KINDS[kind] ?? kind.replaceAll("_", " ");
}

/** Kinds that change something are listed; the others are reads whose callers wait. */
export const CHANGES = [
  "ingest",
  "ingest_lines",
  "update",
  "delete",
  "delete_matching",
  "collection_create",
  "collection_change",
  "collection_delete",
  "migrate",
  "fit",
  "train",
  "models",
  "scrub",
] as const;

export const READS = ["search", "answer", "classify", "score", "embed", "reconstruct", "cluster", "lines", "volume", "labels", "statements", "list", "count", "facets", "stats", "heads"] as const;

const KINDS: Record<string, string> = {
  ingest: "ingest documents",
  ingest_lines: "ingest lines",
  update: "change metadata",
  delete: "delete documents",
  delete_matching: "delete by filter",
  collection_create: "make a collection",
  collection_change: "change a collection",
  collection_delete: "delete a collection",
  migrate: "migrate a collection",
  fit: "fit a codec",
  train: "train a head",
  models: "change models",
  scrub: "read everything again",
  search: "search",
  answer: "answer",
  classify: "classify",
  score: "score pairs",
  embed: "embed",
  reconstruct: "rebuild texts",
  cluster: "group",
  lines: "read lines",
  volume: "count lines",
  labels: "list labels",
  statements: "list statements",
  list: "list documents",
  count: "count documents",
  facets: "count values",
  stats: "measure a collection",
  heads: "list heads",
};
