/** What the API says of maps and of the platform's state. */

export interface Projected {
  records: number;
  unread?: number;
  explained: [number, number];
  ids: string[];
  x: number[];
  y: number[];
  colour: number[];
  colours: { label: string; points: number }[];
  lines?: number[];
  templates?: string[];
}

export interface QueueState {
  queue: string;
  queued: number;
  delayed: number;
  running: number;
  oldest_s: number;
}

export interface Status {
  ready: boolean;
  reason: string | null;
  last_embed_age_s: number | null;
  worker_beat_age_s: number | null;
  trainer_beat_age_s: number | null;
  queues: QueueState[];
  backlog: {
    dead: number;
    unverified: number;
    bytes_unverified: number;
    webhooks: number;
    orphans: number;
    read_only: boolean;
  };
  scrubbed: { sound: number; repaired: number; damaged: number };
  workers: {
    worker: string;
    engines: number;
    disk_full: boolean;
    disk?: { bytes_free: number; bytes_total: number; bytes_floor: number } | null;
  }[];
}

export interface ScrubState {
  number: number;
  state: "" | "none" | "recent" | "running" | "ended";
  running: boolean;
  asked: boolean;
  progress: number;
  recent?: { progress: number; documents: number } | null;
  started?: string | null;
  ended?: string | null;
  documents: number;
  sound: number;
  repaired: number;
  damaged: number;
  bytes: number;
  unread: number;
  damaged_documents?: { collection: string; id: string }[];
}
