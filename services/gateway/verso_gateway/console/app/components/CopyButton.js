import { jsx as _jsx } from "preact/jsx-runtime";
import { useState } from "preact/hooks";
import { Button } from "./Button.js";
/** Copy a text, and say so. */
export function CopyButton({ text, label = "Copy" }) {
    const [done, setDone] = useState(false);
    const copy = async () => {
        await copyText(text);
        setDone(true);
        setTimeout(() => setDone(false), 1500);
    };
    return _jsx(Button, { kind: "quiet", small: true, icon: done ? "check" : "copy", label: done ? "Copied" : label, onClick: () => void copy() });
}
/** Copy to the clipboard, which pages without TLS have on loopback only. */
async function copyText(text) {
    if (navigator.clipboard !== undefined) {
        await navigator.clipboard.writeText(text);
        return;
    }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
}
