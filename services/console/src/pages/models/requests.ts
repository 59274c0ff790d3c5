/** The requests of this page, as they are sent and shown. */

import type { ApiRequest } from "../../api.js";
import type { Channel } from "./types.js";

export const REGISTRY: ApiRequest = { method: "GET", path: "/v1/registry" };
export const HEADS: ApiRequest = { method: "GET", path: "/v1/heads" };

/** Make a canary stable; null is the artifact. */
export function promotion(head: string | null): ApiRequest {
  return { method: "POST", path: "/v1/registry/promote", body: head === null ? {} : { head } };
}

/** Take a canary back, or return to the version before. */
export function rollback(head: string | null): ApiRequest {
  return { method: "POST", path: "/v1/registry/rollback", body: head === null ? {} : { head } };
}

export function report(head: string, channel: Channel): ApiRequest {
  return { method: "GET", path: `/v1/heads/${head}/report`, query: { channel } };
}
