/** Answers of the API that the logs page reads. */

import type { Waiting } from "./lines.js";

export interface Volume {
  lines: number;
  interval_s: number;
  starts: number[];
  counts: number[];
  series: { value: string | null; lines: number; counts: number[] }[];
  waiting: Waiting;
  missing_partitions?: string[];
}

export interface Label {
  name: string;
  lines: number;
  distinct: number;
  values: { value: string; lines: number }[];
}

export interface Labels {
  lines: number;
  labels: Label[];
}

export interface Statement {
  id: string;
  statement: string;
  count: number;
  first_seen: number;
  last_seen: number;
  counts?: number[];
}

export interface Statements {
  lines: number;
  distinct: number;
  interval_s?: number | null;
  starts?: number[];
  statements: Statement[];
  waiting: Waiting;
}

/** Return the class that colours a level; undefined of a word that is none. */
export function levelTone(value: string | null | undefined): string | undefined {
  return value === null || value === undefined ? undefined : LEVELS.get(value.toLowerCase());
}

const LEVELS = new Map(
  Object.entries({
    "level-fatal": ["fatal", "critical", "crit", "emergency", "emerg", "alert", "panic"],
    "level-error": ["error", "err", "severe"],
    "level-warning": ["warning", "warn"],
    "level-info": ["info", "informational", "information", "notice"],
    "level-debug": ["debug", "trace", "verbose", "fine"],
  }).flatMap(([tone, words]) => words.map((word) => [word, tone] as const)),
);
