/** The requests of this page, as they are sent and shown. */
/** Describe a collection. */
export function described(name) {
    return { method: "GET", path: `/v1/collections/${name}` };
}
export function created(wanted) {
    return { method: "POST", path: "/v1/collections", body: wanted };
}
export function changed(name, change) {
    return { method: "PATCH", path: `/v1/collections/${name}`, body: change };
}
export function deleted(name) {
    return { method: "DELETE", path: `/v1/collections/${name}` };
}
export function fitted(name) {
    return { method: "POST", path: `/v1/collections/${name}/fit` };
}
