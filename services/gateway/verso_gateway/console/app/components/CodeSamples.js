import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** "As curl, as Python": every request that a page makes, to be sent again from elsewhere. */
import { useState } from "preact/hooks";
import { address } from "../api.js";
import { caller } from "../session.js";
import { Button } from "./Button.js";
import { CopyButton } from "./CopyButton.js";
import { Dialog } from "./Dialog.js";
import { Tabs } from "./Tabs.js";
/** A button that shows the requests behind what is seen. */
export function CodeSamples({ samples, small = true }) {
    const [open, setOpen] = useState(false);
    if (samples.length === 0)
        return null;
    return (_jsxs(_Fragment, { children: [_jsx(Button, { kind: "quiet", icon: "code", small: small, onClick: () => setOpen(true), title: "This page's requests, as curl and as Python", children: "API" }), _jsx(Dialog, { title: "The requests behind this page", open: open, onClose: () => setOpen(false), wide: true, children: samples.map((sample) => (_jsx(SampleView, { sample: sample }, sample.title))) })] }));
}
function SampleView({ sample }) {
    const [language, setLanguage] = useState("curl");
    const code = language === "curl" ? curlOf(sample.request) : pythonOf(sample.python);
    return (_jsxs("section", { class: "sample", children: [_jsx("h3", { children: sample.title }), _jsx(Tabs, { label: `Languages for: ${sample.title}`, tabs: [
                    { id: "curl", label: "curl" },
                    { id: "python", label: "Python" },
                ], selected: language, onSelect: setLanguage, children: _jsxs("div", { class: "code", children: [_jsx(CopyButton, { text: code }), _jsx("pre", { tabIndex: 0, children: _jsx("code", { children: code }) })] }) })] }));
}
/** Return a request as a line of curl; strings are quoted for a POSIX shell. */
export function curlOf(request, origin = window.location.origin) {
    const parts = ["curl -sS"];
    if (request.method !== "GET" && !(request.method === "POST" && request.body !== undefined)) {
        parts.push(`-X ${request.method}`);
    }
    parts.push(quoted(origin + address(request)));
    if (caller.value?.keys)
        parts.push('-H "Authorization: Bearer $VERSO_API_KEY"');
    if (request.body !== undefined) {
        parts.push("-H 'Content-Type: application/json'", `-d ${quoted(shownJson(request.body))}`);
    }
    if (request.data !== undefined) {
        parts.push(`-H ${quoted(`Content-Type: ${request.data.type}`)}`, "--data-binary @FILE");
    }
    return parts.join(" \\\n  ");
}
const ONE_LINE = 72;
/** Return JSON in one line where it is short, else a line for each of its fields. */
function shownJson(value) {
    const text = JSON.stringify(value);
    if (text.length <= ONE_LINE || value === null || typeof value !== "object" || Array.isArray(value))
        return text;
    const fields = Object.entries(value).filter(([, one]) => one !== undefined);
    return `{\n${fields.map(([name, one]) => `    ${JSON.stringify(name)}: ${JSON.stringify(one)}`).join(",\n")}\n  }`;
}
function pythonOf(calls) {
    const arguments_ = [quotedPython(window.location.origin)];
    const key = caller.value?.keys ? ', api_key=os.environ["VERSO_API_KEY"]' : "";
    const imports = key ? "import os\n\n" : "";
    const body = calls.trim().replace(/^/gm, "    ");
    return `${imports}from verso_client import Client\n\nwith Client(${arguments_.join("")}${key}) as client:\n${body}`;
}
function quoted(text) {
    return `'${text.replaceAll("'", `'\\''`)}'`;
}
function quotedPython(text) {
    return JSON.stringify(text);
}
/** Return a JSON value as Python writes it. */
export function python(value) {
    if (value === null || value === undefined)
        return "None";
    if (value === true)
        return "True";
    if (value === false)
        return "False";
    if (Array.isArray(value))
        return `[${value.map(python).join(", ")}]`;
    if (typeof value === "object") {
        const pairs = Object.entries(value).filter(([, one]) => one !== undefined);
        return `{${pairs.map(([name, one]) => `${JSON.stringify(name)}: ${python(one)}`).join(", ")}}`;
    }
    return JSON.stringify(value);
}
/** Return keyword arguments of a Python call; what is undefined is left out. */
export function keywords(values) {
    return Object.entries(values)
        .filter(([, value]) => value !== undefined && value !== null)
        .map(([name, value]) => `, ${name}=${python(value)}`)
        .join("");
}
