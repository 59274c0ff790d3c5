/** The requests of this page, as they are sent and shown. */
export const REGISTRY = { method: "GET", path: "/v1/registry" };
export const HEADS = { method: "GET", path: "/v1/heads" };
/** Make a canary stable; null is the artifact. */
export function promotion(head) {
    return { method: "POST", path: "/v1/registry/promote", body: head === null ? {} : { head } };
}
/** Take a canary back, or return to the version before. */
export function rollback(head) {
    return { method: "POST", path: "/v1/registry/rollback", body: head === null ? {} : { head } };
}
export function report(head, channel) {
    return { method: "GET", path: `/v1/heads/${head}/report`, query: { channel } };
}
