/** What the API says of collections, as far as this page reads it. */

import type { CollectionInfo, ItemError, Statistics } from "../../types.js";

export interface Kept {
  bytes_entries: number;
  bytes_texts: number;
  bytes_vectors?: number | null;
  bytes_index?: number | null;
  bytes_words?: number | null;
  bytes_points?: number | null;
  bytes_fitted: number;
  bytes_lines: number;
  bytes_memory: number;
  bytes_disk?: number | null;
  bytes_tables: number;
}

export interface Generation {
  id: string;
  stage: string;
  records: number;
  bytes: number;
}

export interface LineStatistics {
  lines: number;
  records: number;
  verified: number;
  streams: number;
  statements: number;
  bytes_text: number;
  bytes_memory: number;
}

/** A collection with all that is counted of it. */
export interface Described extends Statistics {
  kept?: Kept | null;
  lines?: LineStatistics | null;
  generations?: Generation[];
  fits?: number;
}

export interface Refusal {
  id?: string | null;
  error: ItemError;
}

export interface IngestAccepted {
  id: string;
  accepted: number;
  refused?: number;
  refusals?: Refusal[];
}

export interface NewCollection {
  name: string;
  kind: CollectionInfo["kind"];
  precision: CollectionInfo["precision"];
  search: CollectionInfo["search"];
  codec_policy: CollectionInfo["codec_policy"];
  text_policy: CollectionInfo["text_policy"];
  retention_days?: number;
}
