import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** What surrounds every page: navigation, theme, session, messages, keys of the keyboard. */
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { connection } from "./api.js";
import { Button } from "./components/Button.js";
import { Dialog } from "./components/Dialog.js";
import { Icon } from "./components/Icon.js";
import { Key } from "./components/Layout.js";
import { Empty, ErrorState, Loading, NoPermission } from "./components/States.js";
import { Toasts } from "./components/Toast.js";
import { PAGES } from "./pages.js";
import { Link, addressOf, navigate, place } from "./router.js";
import { caller, callerProblem, identify, may, signOut, signedOut } from "./session.js";
import { SignIn } from "./signin.js";
import { theme } from "./theme.js";
const helpOpen = signal(false);
const menuOpen = signal(false);
const loaded = new Map();
export function Shell() {
    useEffect(listenForKeys, []);
    if (signedOut.value)
        return _jsx(SignIn, {});
    return (_jsxs("div", { class: "shell", children: [_jsx("a", { class: "skip", href: "#content", children: "Skip to the content" }), _jsx(Rail, {}), _jsxs("main", { id: "content", tabIndex: -1, children: [connection.value === "lost" && (_jsxs("div", { class: "connection", role: "status", children: [_jsx("span", { class: "spinner", "aria-hidden": "true" }), " The platform does not answer. Trying again \u2026"] })), _jsx(CurrentPage, {})] }), _jsx(Toasts, {}), _jsx(Shortcuts, {})] }));
}
function Rail() {
    const current = place.value.page.split("/")[0];
    const entry = PAGES.find((page) => page.name === current);
    return (_jsxs("header", { class: menuOpen.value ? "rail open" : "rail", children: [_jsxs("div", { class: "rail-top", children: [_jsxs(Link, { to: addressOf("search"), class: "brand", "aria-label": "Verso, search", children: [_jsxs("svg", { width: "24", height: "24", viewBox: "0 0 32 32", "aria-hidden": "true", children: [_jsx("rect", { width: "32", height: "32", rx: "7", class: "brand-field" }), _jsx("path", { d: "M8 8l8 17 8-17M13.2 8h5.6", class: "brand-mark" })] }), _jsx("span", { children: "Verso" })] }), _jsx("span", { class: "rail-current", children: entry?.title }), _jsx("span", { class: "rail-toggle", children: _jsx(Button, { kind: "quiet", icon: menuOpen.value ? "close" : "menu", label: "Menu", expanded: menuOpen.value, onClick: () => {
                                menuOpen.value = !menuOpen.value;
                            } }) })] }), _jsxs("nav", { class: "rail-nav", "aria-label": "Pages", children: [_jsx(NavGroup, { title: "Find", pages: PAGES.filter((page) => page.group === "find"), current: current }), _jsx(NavGroup, { title: "Platform", pages: PAGES.filter((page) => page.group === "platform"), current: current })] }), _jsxs("div", { class: "rail-foot", children: [_jsx(ThemeChoice, {}), _jsxs("button", { type: "button", class: "rail-item", onClick: () => (helpOpen.value = true), children: [_jsx(Icon, { name: "keyboard" }), _jsx("span", { children: "Keyboard" })] }), _jsxs("a", { class: "rail-item", href: "/openapi.json", target: "_blank", rel: "noreferrer", children: [_jsx(Icon, { name: "code" }), _jsx("span", { children: "API description" })] }), caller.value?.keys && (_jsxs("div", { class: "rail-caller", children: [_jsx(Icon, { name: "user" }), _jsxs("span", { children: [_jsx("b", { children: caller.value.name }), _jsx("small", { children: caller.value.scopes.join(", ") })] }), _jsx(Button, { kind: "quiet", small: true, onClick: () => void signOut(), children: "Sign out" })] }))] })] }));
}
function NavGroup({ title, pages, current }) {
    if (pages.length === 0)
        return null;
    return (_jsxs("div", { class: "rail-group", children: [_jsx("p", { class: "rail-heading", children: title }), _jsx("ul", { children: pages.map((page) => (_jsx("li", { children: _jsxs(Link, { to: addressOf(page.name), class: "rail-item", "aria-current": page.name === current ? "page" : undefined, onClick: () => {
                            menuOpen.value = false;
                        }, children: [_jsx(Icon, { name: page.icon }), _jsx("span", { children: page.title }), caller.value !== null && !may(page.scope) && _jsx(Icon, { name: "lock", size: 14 })] }) }, page.name))) })] }));
}
const THEMES = [
    { value: "system", label: "System colours", icon: "system" },
    { value: "light", label: "Light", icon: "sun" },
    { value: "dark", label: "Dark", icon: "moon" },
];
function ThemeChoice() {
    return (_jsxs("fieldset", { class: "themes", children: [_jsx("legend", { class: "visually-hidden", children: "Colours" }), THEMES.map((one) => (_jsxs("label", { title: one.label, children: [_jsx("input", { type: "radio", name: "theme", value: one.value, checked: theme.value === one.value, onChange: () => {
                            theme.value = one.value;
                        } }), _jsx(Icon, { name: one.icon, size: 16 }), _jsx("span", { class: "visually-hidden", children: one.label })] }, one.value)))] }));
}
function CurrentPage() {
    const name = place.value.page.split("/")[0];
    const entry = PAGES.find((page) => page.name === name);
    const [, setReady] = useState(0);
    const [failed, setFailed] = useState(null);
    const known = entry && loaded.get(entry.name);
    useEffect(() => {
        if (entry === undefined || known !== undefined)
            return;
        setFailed(null);
        entry
            .load()
            .then((module) => {
            loaded.set(entry.name, module.default);
            setReady((before) => before + 1);
        })
            .catch(() => setFailed(entry.name)); // a newer gateway has no file of this version
    }, [entry?.name]);
    if (entry === undefined) {
        return (_jsxs("div", { class: "page", children: [_jsx("h1", { class: "visually-hidden", children: "Not found" }), _jsx(Empty, { icon: "search", title: "There is no such page", children: _jsx(Button, { to: addressOf("search"), children: "Go to the search" }) })] }));
    }
    if (caller.value !== null && !may(entry.scope)) {
        return (_jsxs("div", { class: "page", children: [_jsx("h1", { class: "visually-hidden", children: entry.title }), _jsx(NoPermission, { scope: entry.scope })] }));
    }
    if (failed === entry.name) {
        return (_jsxs("div", { class: "page", children: [_jsx("h1", { class: "visually-hidden", children: entry.title }), _jsxs(Empty, { icon: "refresh", title: "This page could not be loaded", children: [_jsx("p", { children: "The platform may have been updated since the console was opened." }), _jsx(Button, { icon: "refresh", onClick: () => window.location.reload(), children: "Load the console again" })] })] }));
    }
    if (callerProblem.value !== null) {
        return (_jsxs("div", { class: "page", children: [_jsx("h1", { class: "visually-hidden", children: entry.title }), _jsx(ErrorState, { problem: callerProblem.value, retry: () => void identify() })] }));
    }
    if (known === undefined || caller.value === null) {
        return (_jsx("div", { class: "page", children: _jsx(Loading, { lines: 4 }) }));
    }
    const View = known;
    return _jsx(View, {});
}
function Shortcuts() {
    return (_jsx(Dialog, { title: "Keyboard", open: helpOpen.value, onClose: () => {
            helpOpen.value = false;
        }, children: _jsxs("dl", { class: "shortcuts", children: [_jsxs("div", { children: [_jsx("dt", { children: _jsx(Key, { children: "/" }) }), _jsx("dd", { children: "to the field of the page" })] }), _jsxs("div", { children: [_jsxs("dt", { children: [_jsx(Key, { children: "j" }), " ", _jsx(Key, { children: "k" })] }), _jsx("dd", { children: "to the next, the previous result" })] }), _jsxs("div", { children: [_jsx("dt", { children: _jsx(Key, { children: "Enter" }) }), _jsx("dd", { children: "open what is focused" })] }), PAGES.map((page) => (_jsxs("div", { children: [_jsxs("dt", { children: [_jsx(Key, { children: "g" }), " ", _jsx(Key, { children: page.key })] }), _jsx("dd", { children: page.title })] }, page.name))), _jsxs("div", { children: [_jsx("dt", { children: _jsx(Key, { children: "?" }) }), _jsx("dd", { children: "this list" })] })] }) }));
}
const SEQUENCE_MS = 1200;
/** Listen for the keys that hold everywhere. A page marks its field and results by data attributes. */
function listenForKeys() {
    let goAtMs = Number.NEGATIVE_INFINITY;
    const onKey = (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target))
            return;
        if (document.querySelector("dialog[open]") !== null)
            return;
        const now = performance.now();
        const going = now - goAtMs < SEQUENCE_MS;
        goAtMs = event.key === "g" && !going ? now : Number.NEGATIVE_INFINITY;
        const entry = going ? PAGES.find((page) => page.key === event.key) : undefined;
        if (entry !== undefined)
            navigate(addressOf(entry.name));
        else if (event.key === "/")
            focusOn("[data-page-field]");
        else if (event.key === "?")
            helpOpen.value = true;
        else if (event.key === "j")
            moveResult(1);
        else if (event.key === "k")
            moveResult(-1);
        else
            return;
        event.preventDefault();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
}
function isTyping(target) {
    if (!(target instanceof HTMLElement))
        return false;
    if (target instanceof HTMLInputElement)
        return !["radio", "checkbox", "button"].includes(target.type);
    return target.isContentEditable || ["TEXTAREA", "SELECT"].includes(target.tagName);
}
function focusOn(selector) {
    const field = document.querySelector(selector);
    field?.focus();
    field?.select?.();
}
function moveResult(step) {
    const results = [...document.querySelectorAll("[data-result]")];
    const at = results.findIndex((result) => result === document.activeElement);
    const next = at === -1 ? (step > 0 ? 0 : results.length - 1) : Math.max(0, Math.min(results.length - 1, at + step));
    results[next]?.focus();
    results[next]?.scrollIntoView({ block: "nearest" });
}
