import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Short messages on what just happened, at the edge of the page. */
import { signal } from "@preact/signals";
import { problemFrom } from "../api.js";
import { Icon } from "./Icon.js";
const messages = signal([]);
const SHOWN_MS = 6000;
let last = 0;
/** Show a message for some seconds. */
export function toast(text, tone = "good") {
    last += 1;
    const id = last;
    messages.value = [...messages.value, { id, text, tone }];
    setTimeout(() => dismiss(id), SHOWN_MS);
}
/** Show why something failed. */
export function toastProblem(error) {
    const problem = problemFrom(error);
    toast(`${problem.detail} (${problem.code})`, "bad");
}
function dismiss(id) {
    messages.value = messages.value.filter((message) => message.id !== id);
}
export function Toasts() {
    return (_jsx("div", { class: "toasts", "aria-live": "polite", role: "status", children: messages.value.map((message) => (_jsxs("div", { class: `toast ${message.tone}`, children: [_jsx(Icon, { name: message.tone === "good" ? "check" : "warning", size: 16 }), _jsx("span", { children: message.text }), _jsx("button", { type: "button", "aria-label": "Dismiss", onClick: () => dismiss(message.id), children: _jsx(Icon, { name: "close", size: 14 }) })] }, message.id))) }));
}
