/**
 * Requests to the platform.
 *
 * 1. A request carries the session's cookie and, if it changes something, a key that makes it safe
 *    to repeat.
 * 2. 202 says that the job is not done yet: the same request is sent again, whose key finds the job,
 *    until its result is there.
 * 3. A gateway that does not answer is asked again, with growing pauses; `connection` says so.
 * 4. Any other answer than 2xx is an `ApiError` with the platform's problem (RFC 9457).
 */
import { signal } from "@preact/signals";
export class ApiError extends Error {
    problem;
    constructor(problem) {
        super(problem.detail);
        this.problem = problem;
        this.name = "ApiError";
    }
}
/** Whether the gateway answers; `lost` while requests are repeated. */
export const connection = signal("online");
/** Counts up whenever the gateway answers again, so that pages read anew. */
export const reconnected = signal(0);
/** Set by an answer 401: who asks is not known (any more). */
export const unauthorized = signal(false);
const WAIT_S = 20;
const PAUSES_MS = [300, 700, 1500, 3000];
const GATEWAY_AWAY = new Set([502, 503, 504]);
/** Return the JSON body of the answer; undefined of an empty one. */
export async function call(request, options = {}) {
    const response = await send(request, options);
    if (response.status === 204)
        return undefined;
    const text = await response.text();
    return (text === "" ? undefined : JSON.parse(text));
}
/** Return the answer itself, for bytes and streams; see `call`. */
export async function send(request, options = {}) {
    const headers = headersOf(request, options);
    for (;;) {
        const response = await reach(request, headers, options.signal);
        if (response.status === 202 && !options.detached) {
            options.onPending?.(response.headers.get("verso-job-id") ?? "");
            await pause(200, options.signal);
            continue;
        }
        if (response.ok)
            return response;
        const problem = await problemOf(response);
        if (problem.status === 401)
            unauthorized.value = true;
        throw new ApiError(problem);
    }
}
/** Return the address of a request, with its query. */
export function address(request) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(request.query ?? {})) {
        if (value === null || value === undefined)
            continue;
        for (const one of Array.isArray(value) ? value : [value])
            query.append(name, String(one));
    }
    const text = query.toString();
    return text === "" ? request.path : `${request.path}?${text}`;
}
/** Return an id as a part of a path. */
export function segment(id) {
    return id.split("/").map(encodeURIComponent).join("/");
}
/** Return a failure as a problem, whatever threw it. */
export function problemFrom(error) {
    if (error instanceof ApiError)
        return error.problem;
    return {
        status: 0,
        code: "console",
        title: "The console failed",
        detail: error instanceof Error ? error.message : String(error),
        retryable: false,
        requestId: null,
    };
}
function headersOf(request, options) {
    const headers = new Headers({ Accept: options.accept ?? "application/json" });
    if (request.body !== undefined)
        headers.set("Content-Type", "application/json");
    if (request.data !== undefined)
        headers.set("Content-Type", request.data.type);
    headers.set("Prefer", preferred(request, options));
    if (request.method !== "GET")
        headers.set("Idempotency-Key", newKey());
    return headers;
}
/** Return a random key. `crypto.randomUUID` is missing where a page came by plain HTTP from another machine. */
function newKey() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
/** Return how long to wait; the pages name the partitions that an answer leaves out. */
function preferred(request, options) {
    const wait = options.detached ? "respond-async" : `wait=${options.waitS ?? WAIT_S}`;
    return request.path === "/v1/logs/query" ? `${wait}, handling=lenient` : wait;
}
/** Send until the gateway answers. Only what is safe to repeat is repeated. */
async function reach(request, headers, signal) {
    for (let attempt = 0;; attempt += 1) {
        try {
            const body = request.data?.content ?? (request.body === undefined ? undefined : JSON.stringify(request.body));
            const init = { method: request.method, headers, credentials: "same-origin" };
            if (body !== undefined)
                init.body = body;
            if (signal !== undefined)
                init.signal = signal;
            const response = await fetch(address(request), init);
            if (!GATEWAY_AWAY.has(response.status) || response.headers.has("x-request-id")) {
                if (connection.value === "lost") {
                    connection.value = "online";
                    reconnected.value += 1;
                }
                return response;
            }
        }
        catch (error) {
            if (signal?.aborted || !(error instanceof TypeError))
                throw error;
        }
        connection.value = "lost";
        await pause(PAUSES_MS[Math.min(attempt, PAUSES_MS.length - 1)] ?? 3000, signal);
    }
}
async function problemOf(response) {
    const text = await response.text();
    let body = {};
    try {
        body = JSON.parse(text);
    }
    catch {
        // a proxy's page is no problem document
    }
    const word = (name, other) => {
        const value = body[name];
        return typeof value === "string" ? value : other;
    };
    return {
        status: response.status,
        code: word("code", `http_${response.status}`),
        title: word("title", response.statusText || `HTTP ${response.status}`),
        detail: word("detail", text.slice(0, 300) || "The answer has no explanation."),
        retryable: body["retryable"] === true,
        requestId: typeof body["request_id"] === "string" ? body["request_id"] : null,
        ...(typeof body["pointer"] === "string" ? { pointer: body["pointer"] } : {}),
    };
}
/** Return after some milliseconds, or throw when the request is given up. */
export function pause(ms, signal) {
    return new Promise((resolve, reject) => {
        const stop = () => {
            clearTimeout(timer);
            reject(signal?.reason);
        };
        const timer = setTimeout(() => {
            signal?.removeEventListener("abort", stop);
            resolve();
        }, ms);
        if (signal?.aborted)
            stop();
        else
            signal?.addEventListener("abort", stop, { once: true });
    });
}
