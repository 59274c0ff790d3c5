/** Answers of the API that several pages read; see `/openapi.json`. */

export type Metadata = Record<string, unknown>;

export interface ItemError {
  code: string;
  detail: string;
  retryable: boolean;
}

export interface CollectionInfo {
  name: string;
  kind: "documents" | "logs";
  precision: "float16" | "int8" | "int4";
  text_policy: "patch" | "both";
  search: "dense" | "hybrid";
  codec_policy: "smallest" | "balanced" | "fast";
  dim: number;
  created?: string | null;
  owner?: string | null;
  indexes: Record<string, "keyword" | "number">;
  retention_days?: number | null;
  auto_fit?: boolean;
  partitions?: number | null;
  rollover?: { span_s: number; max_bytes?: number | null } | null;
  /** Names of those that their ledgers no longer have. */
  missing_partitions?: string[];
}

export interface CollectionList {
  collections: CollectionInfo[];
}

export interface Statistics extends Partial<CollectionInfo> {
  name: string;
  documents: number;
  chunks: number;
  verified: number;
  unreadable: number;
  points: number;
  bytes_text: number;
  bytes_vectors: number;
  bytes_terms: number;
  bytes_patches: number;
  bytes_entries: number;
  codecs: Record<string, { records: number; bytes: number }>;
}

/** A text as the API gives it: base64 where it is not UTF-8. */
export interface Text {
  text?: string | null;
  text_base64?: string | null;
}

export interface Explanation {
  dense?: number | null;
  sparse?: number | null;
  fused?: number | null;
  rerank_score?: number | null;
  rerank_share?: number | null;
}

export interface StatementLine extends Text {
  id: string;
  time?: string | null;
}

export interface Hit extends Text {
  id: string;
  document: string;
  chunk: number;
  score: number;
  rerank_score?: number | null;
  metadata?: Metadata;
  time?: number | null;
  error?: ItemError | null;
  explain?: Explanation | null;
  statement?: string | null;
  statement_id?: string | null;
  count?: number | null;
  first_seen?: number | null;
  last_seen?: number | null;
  lines?: StatementLine[];
}

export interface Found {
  job_id: string;
  collection: string;
  hits: Hit[];
  timings_ms: Record<string, number>;
  missing_partitions?: string[];
}

export interface Place {
  start?: number | null;
  end?: number | null;
  start_byte: number;
  end_byte: number;
}

export interface AnswerPart extends Text, Place {
  score: number;
  null_score: number;
  confidence?: number | null;
  evidence: Place;
  id?: string | null;
  document?: string | null;
  chunk?: number | null;
  search_score?: number | null;
  metadata?: Metadata;
  document_start_byte?: number | null;
  document_end_byte?: number | null;
  /** Of an ingested file: page, slide or sheet, from 1. */
  page?: number | null;
}

export interface Answered {
  job_id: string;
  head: string;
  version: string;
  channel: string;
  answered: boolean;
  null_threshold: number;
  contexts: number;
  answers: AnswerPart[];
  failed: { id: string; error: ItemError }[];
  timings_ms: Record<string, number>;
}

export interface StoredText extends Text {
  id: string;
  chunk?: number | null;
  chunks?: number | null;
  exact: boolean;
  metadata?: Metadata;
  time?: number | null;
  error?: ItemError | null;
}

export interface Batch<T> {
  results: T[];
  timings_ms: Record<string, number>;
}

export interface DocumentInfo {
  id: string;
  written: number;
  bytes: number;
  verified: boolean;
  chunks?: number | null;
  metadata?: Metadata;
  time?: number | null;
}

export interface DocumentPage {
  documents: DocumentInfo[];
  next_cursor?: string | null;
}

export type Scalar = string | number | boolean;

export interface Facets {
  documents: number;
  facets: { field: string; values: { value: Scalar; documents: number }[]; distinct: number; missing: number }[];
}

export type Filter =
  | { and: Filter[] }
  | { or: Filter[] }
  | { not: Filter }
  | { field: string; [operator: string]: unknown };

export interface Correction extends Place {
  guess: string;
}

export interface Draft {
  guess: string;
  confidence: number;
  log_probability: number;
  tokens: number;
  right: number;
  corrections?: Correction[];
}

export interface StoredRecord {
  id: string;
  codec: string;
  artifact: string;
  bytes_text?: number | null;
  bytes_patch: number;
  bytes_vector: number;
  vector_hash: string;
  vector?: number[] | null;
  draft?: Draft | null;
  error?: ItemError | null;
}

export interface StoredRecords {
  id: string;
  chunks: number;
  written: number;
  verified: boolean;
  bytes_text: number;
  bytes_entry: number;
  records: StoredRecord[];
}
