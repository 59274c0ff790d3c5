/** What the API says of models, as far as this page reads it. */

import type { ItemError } from "../../types.js";

export interface Withdrawn {
  version: string;
  reason: string;
  time: string;
}

/** A canary beside the stable version, added up over all workers. */
export interface Comparison {
  pairs: number;
  agreed: number;
  differed: number;
  p95_ms_stable?: number | null;
  p95_ms_canary?: number | null;
  labels: number;
  brier_stable?: number | null;
  brier_canary?: number | null;
  read_back: number;
}

export interface Rollout {
  stable?: string | null;
  canary?: string | null;
  share: number;
  previous?: string | null;
  withdrawn?: Withdrawn | null;
  comparison?: Comparison | null;
}

/** What a worker has counted of a canary since it started. */
export interface Trial {
  passed: number;
  failed: number;
  agreed?: number;
  differed?: number;
}

export interface Refused {
  channel: string;
  name: string;
  error: ItemError;
}

interface Served {
  name: string;
  space: string;
  codec: string;
}

export interface WorkerState {
  worker: string;
  artifact?: { stable?: Served | null; canary?: Served | null; refused?: Refused[]; trial?: Trial | null };
  heads?: { name: string; stable?: { version: string; error?: ItemError } | null; canary?: { version: string; error?: ItemError } | null; trial?: Trial | null }[];
  engines?: number;
}

export interface Registry {
  artifact: Rollout;
  heads: Record<string, Rollout>;
  workers: WorkerState[];
}

export interface HeadVersion {
  version: string;
  created?: string | null;
  task?: "classify" | "answer" | "score";
  reads?: string;
  space?: string;
  labels?: string[];
  none_label?: string | null;
  metrics?: Record<string, number>;
  accept_by?: string | null;
  accept_errors?: string[];
  data?: string[];
  licence?: string | null;
  error?: ItemError | null;
}

export interface HeadInfo {
  name: string;
  share: number;
  stable?: HeadVersion | null;
  canary?: HeadVersion | null;
}

export interface HeadList {
  heads: HeadInfo[];
}

export interface RiskCurve {
  signal: string;
  coverage: number[];
  risk: number[];
}

export interface HeadFigures {
  rows?: number | null;
  accuracy?: number | null;
  accept_by?: string | null;
  risk_coverage?: RiskCurve[];
  accepted?: { asked: number; coverage: number; risk: number }[];
  calibration?: { rows: number; confidence: number; accuracy: number }[];
  metrics?: Record<string, number>;
}

export interface HeadReport {
  head: string;
  version: string;
  report: string;
  figures?: HeadFigures | null;
}

export type Channel = "stable" | "canary";

/** Return the name that people read: versions of heads are hashes. */
export function shortVersion(version: string | null | undefined): string {
  return version ? (/^[0-9a-f]{16}$/.test(version) ? version.slice(0, 8) : version) : "–";
}

/** Add up what all workers have counted of a canary; undefined where none has counted. */
export function trialOf(workers: readonly WorkerState[], head: string | null): Trial | undefined {
  const own = workers
    .map((worker) => (head === null ? worker.artifact?.trial : worker.heads?.find((one) => one.name === head)?.trial))
    .filter((trial): trial is Trial => trial !== null && trial !== undefined);
  if (own.length === 0) return undefined;
  const sum = (pick: (trial: Trial) => number | undefined) => own.reduce((total, trial) => total + (pick(trial) ?? 0), 0);
  return {
    passed: sum((one) => one.passed),
    failed: sum((one) => one.failed),
    agreed: sum((one) => one.agreed),
    differed: sum((one) => one.differed),
  };
}

const TASKS = { classify: "classifies", answer: "answers", score: "scores pairs" };

export function taskOf(head: HeadInfo): string {
  const version = head.stable ?? head.canary;
  return version?.task ? TASKS[version.task] : "–";
}

/** Return the one figure that says most of a head, with its name. */
export function headline(version: HeadVersion | null | undefined): { name: string; value: number } | undefined {
  const metrics = version?.metrics ?? {};
  const known: [string, string, number][] = [
    ["accuracy", "accuracy", 1],
    ["eval_f1", "F1", 0.01],
    ["f1", "F1", 0.01],
    ["spearman", "Spearman", 1],
  ];
  for (const [key, name, scale] of known) {
    const value = metrics[key];
    if (value !== undefined) return { name, value: value * scale };
  }
  const [name, value] = Object.entries(metrics).find(([key]) => !key.includes("rows") && !key.includes("/")) ?? [];
  return name === undefined || value === undefined ? undefined : { name: name.replaceAll("_", " "), value: value > 1 ? value / 100 : value };
}
