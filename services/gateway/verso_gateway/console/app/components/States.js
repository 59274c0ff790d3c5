import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
import { caller } from "../session.js";
import { Button } from "./Button.js";
import { Icon } from "./Icon.js";
/** Nothing is there, and what to do about it. */
export function Empty({ icon = "info", title, children }) {
    return (_jsxs("div", { class: "state", children: [_jsx("span", { class: "state-icon", children: _jsx(Icon, { name: icon, size: 24 }) }), _jsx("p", { class: "state-title", children: title }), children && _jsx("div", { class: "state-text", children: children })] }));
}
/** Lines that stand for what is on its way. */
export function Loading({ lines = 3, label = "Loading" }) {
    return (_jsxs("div", { class: "skeleton", role: "status", children: [_jsx("span", { class: "visually-hidden", children: label }), Array.from({ length: lines }, (_, index) => (_jsx("span", { class: `bar w${index % 4}` }, index)))] }));
}
/** A request failed: what the platform says, its code, and what helps. */
export function ErrorState({ problem, retry }) {
    if (problem.status === 403)
        return _jsx(NoPermission, { detail: problem.detail });
    return (_jsxs("div", { class: "state error", role: "alert", children: [_jsx("span", { class: "state-icon", children: _jsx(Icon, { name: "warning", size: 24 }) }), _jsx("p", { class: "state-title", children: sentence(problem.title) }), _jsx("p", { class: "state-text", children: problem.detail }), _jsxs("p", { class: "state-code", children: [_jsx("a", { href: `/docs/errors/${problem.code}`, target: "_blank", rel: "noreferrer", children: problem.code }), problem.requestId && _jsxs("span", { children: [" \u00B7 request ", problem.requestId.slice(0, 12)] })] }), retry && (_jsx(Button, { icon: "refresh", onClick: retry, children: "Try again" }))] }));
}
/** The caller's key does not allow this. */
export function NoPermission({ scope, detail }) {
    return (_jsxs("div", { class: "state", children: [_jsx("span", { class: "state-icon", children: _jsx(Icon, { name: "lock", size: 24 }) }), _jsx("p", { class: "state-title", children: "Your key does not allow this" }), _jsxs("div", { class: "state-text", children: [scope ? (_jsxs("p", { children: ["It needs the scope ", _jsx("code", { children: scope }), "; the key ", _jsx("b", { children: caller.value?.name }), " has", " ", caller.value?.scopes.join(", ") || "none", "."] })) : (_jsx("p", { children: detail })), _jsxs("p", { children: ["The platform's operator can make one: ", _jsxs("code", { children: ["verso keys new NAME --scope ", scope ?? "SCOPE"] })] })] })] }));
}
/** A line above content that is still shown: a failure, or a remark. */
export function Notice({ tone = "neutral", children }) {
    return (_jsxs("div", { class: `notice ${tone}`, role: tone === "bad" ? "alert" : "status", children: [_jsx(Icon, { name: tone === "good" ? "check" : tone === "neutral" ? "info" : "warning", size: 16 }), _jsx("div", { children: children })] }));
}
/** Partitions of a collection that their ledgers no longer have: what is shown leaves them out. */
export function MissingNotice({ names }) {
    if (names === undefined || names.length === 0)
        return null;
    return (_jsxs(Notice, { tone: "bad", children: [names.length === 1 ? "The ledger of this partition no longer has it" : "The ledgers of these partitions no longer have them", ": ", names.join(", "), ". What ", names.length === 1 ? "it" : "they", " held is not in what is shown.", " ", _jsx("a", { href: "/docs/errors/partition_missing", target: "_blank", rel: "noreferrer", children: "What to do" })] }));
}
function sentence(text) {
    return text.charAt(0).toUpperCase() + text.slice(1);
}
