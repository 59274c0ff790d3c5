/** The requests of this page, as they are sent and shown. */

import type { ApiRequest } from "../../api.js";
import type { NewCollection } from "./types.js";

/** Describe a collection. */
export function described(name: string): ApiRequest {
  return { method: "GET", path: `/v1/collections/${name}` };
}

export function created(wanted: NewCollection): ApiRequest {
  return { method: "POST", path: "/v1/collections", body: wanted };
}

export function changed(name: string, change: Record<string, unknown>): ApiRequest {
  return { method: "PATCH", path: `/v1/collections/${name}`, body: change };
}

export function deleted(name: string): ApiRequest {
  return { method: "DELETE", path: `/v1/collections/${name}` };
}

export function fitted(name: string): ApiRequest {
  return { method: "POST", path: `/v1/collections/${name}/fit` };
}
