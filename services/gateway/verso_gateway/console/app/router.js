import { jsx as _jsx } from "preact/jsx-runtime";
/** Addresses below `/console`: every state of a page is in its path and query. */
import { signal } from "@preact/signals";
export const BASE = "/console";
function here() {
    const path = window.location.pathname.slice(BASE.length).replace(/^\/+|\/+$/g, "");
    return { page: path === "" ? "search" : path, query: new URLSearchParams(window.location.search) };
}
/** Where the reader is; components that read it are drawn again when it changes. */
export const place = signal(here());
window.addEventListener("popstate", () => {
    place.value = here();
});
/** Return the address of a page; a value that is null, undefined, false or empty is left out. */
export function addressOf(page, query = {}) {
    const params = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
        append(params, name, value);
    return joined(page, params);
}
/** Go to an address below the console. */
export function navigate(to, { replace = false } = {}) {
    if (to === window.location.pathname + window.location.search)
        return;
    if (replace)
        window.history.replaceState(null, "", to);
    else
        window.history.pushState(null, "", to);
    const before = place.value;
    place.value = here();
    // another page, or another thing on it; a filter of the same list stays where it was
    const moved = place.value.page !== before.page || place.value.query.get("id") !== before.query.get("id");
    if (!replace && moved) {
        window.scrollTo(0, 0);
        document.querySelector("main")?.focus({ preventScroll: true });
    }
}
/** Change parts of this page's query; the others stay. */
export function setQuery(change, options = {}) {
    const params = new URLSearchParams(place.value.query);
    for (const [name, value] of Object.entries(change)) {
        params.delete(name);
        append(params, name, value);
    }
    navigate(joined(place.value.page, params), options);
}
function append(params, name, value) {
    if (value === null || value === undefined || value === false || value === "")
        return;
    for (const one of Array.isArray(value) ? value : [value])
        params.append(name, String(one));
}
function joined(page, params) {
    const text = params.toString();
    return `${BASE}/${page}${text === "" ? "" : `?${text}`}`;
}
/** A link within the console; other clicks than a plain one are the browser's. */
export function Link({ to, children, onClick, ...rest }) {
    return (_jsx("a", { ...rest, href: to, onClick: (event) => {
            onClick?.(event);
            const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
            if (!plain || event.defaultPrevented)
                return;
            event.preventDefault();
            navigate(to);
        }, children: children }));
}
