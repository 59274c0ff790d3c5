import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
import { Link } from "../router.js";
import { Icon } from "./Icon.js";
export function Button(props) {
    const { children, kind = "plain", icon, label, to, type = "button", small, busy, pressed, expanded } = props;
    const alone = children === undefined || children === null;
    const classes = ["button", kind, small ? "small" : "", alone ? "icon-only" : ""].filter(Boolean).join(" ");
    const inner = (_jsxs(_Fragment, { children: [busy ? _jsx("span", { class: "spinner", "aria-hidden": "true" }) : icon && _jsx(Icon, { name: icon, size: small ? 15 : 17 }), children] }));
    if (to !== undefined) {
        return (_jsx(Link, { to: to, class: classes, "aria-label": label, title: props.title ?? label, children: inner }));
    }
    return (_jsx("button", { type: type, class: classes, "aria-label": label, title: props.title ?? label, "aria-pressed": pressed, "aria-expanded": expanded, "aria-busy": busy || undefined, disabled: props.disabled || busy, onClick: props.onClick, children: inner }));
}
