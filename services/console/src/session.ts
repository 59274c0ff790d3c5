/** Who is signed in, and what the caller may do. */

import { computed, signal } from "@preact/signals";
import { ApiError, type Problem, call, problemFrom, unauthorized } from "./api.js";

export type Scope = "ingest" | "read" | "admin";

export interface Caller {
  /** Name of the API key, which is also the tenant. */
  name: string;
  scopes: Scope[];
  /** Whether the platform uses API keys; without them all is allowed. */
  keys: boolean;
}

/** The caller; null before the first answer. */
export const caller = signal<Caller | null>(null);
/** Why the caller is not known, where that is neither a missing key nor a gateway that is away. */
export const callerProblem = signal<Problem | null>(null);
/** Whether an API key must be given first. */
export const signedOut = computed(() => unauthorized.value);

/** Whether the caller has a scope; false before it is known. */
export function may(scope: Scope): boolean {
  return caller.value?.scopes.includes(scope) ?? false;
}

/** Ask who the caller is. */
export async function identify(): Promise<void> {
  callerProblem.value = null;
  try {
    caller.value = await call<Caller>({ method: "GET", path: "/v1/session" });
  } catch (error) {
    const problem = problemFrom(error);
    if (problem.status !== 401) callerProblem.value = problem;
  }
}

/**
 * Exchange an API key for a session, whose cookie scripts cannot read.
 *
 * @throws ApiError the key is not known here.
 */
export async function signIn(key: string): Promise<void> {
  const response = await fetch("/v1/session", {
    method: "POST",
    headers: { Authorization: `Bearer ${key}` },
    credentials: "same-origin",
  });
  if (!response.ok) {
    const body = (await response.json().catch(() => ({}))) as { detail?: string; code?: string };
    throw new ApiError({
      status: response.status,
      code: body.code ?? `http_${response.status}`,
      title: "Not signed in",
      detail: body.detail ?? "The gateway refused the key.",
      retryable: false,
      requestId: null,
    });
  }
  unauthorized.value = false;
  await identify();
}

/** End the session. */
export async function signOut(): Promise<void> {
  await fetch("/v1/session", { method: "DELETE", credentials: "same-origin" });
  caller.value = null;
  unauthorized.value = true;
}
