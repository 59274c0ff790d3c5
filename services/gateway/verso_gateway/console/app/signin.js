import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Where a platform uses API keys: exchange one for a session. */
import { useState } from "preact/hooks";
import { problemFrom } from "./api.js";
import { Button } from "./components/Button.js";
import { TextField } from "./components/Field.js";
import { signIn } from "./session.js";
export function SignIn() {
    const [key, setKey] = useState("");
    const [error, setError] = useState();
    const [busy, setBusy] = useState(false);
    document.title = "Sign in · Verso";
    const submit = async () => {
        setBusy(true);
        setError(undefined);
        try {
            await signIn(key.trim());
        }
        catch (failed) {
            setError(problemFrom(failed).detail);
            setBusy(false);
        }
    };
    return (_jsx("main", { class: "signin", children: _jsxs("form", { class: "card", onSubmit: (event) => {
                event.preventDefault();
                void submit();
            }, children: [_jsxs("svg", { width: "40", height: "40", viewBox: "0 0 32 32", "aria-hidden": "true", children: [_jsx("rect", { width: "32", height: "32", rx: "7", class: "brand-field" }), _jsx("path", { d: "M8 8l8 17 8-17M13.2 8h5.6", class: "brand-mark" })] }), _jsx("h1", { children: "Sign in to Verso" }), _jsx("p", { children: "This platform uses API keys. The key is exchanged for a session and not kept in the browser." }), _jsx(TextField, { label: "API key", type: "password", autocomplete: "current-password", placeholder: "vk_\u2026", value: key, error: error, required: true, onInput: setKey }), _jsx(Button, { kind: "primary", type: "submit", busy: busy, children: "Sign in" }), _jsxs("p", { class: "hint", children: ["The platform's operator makes keys: ", _jsx("code", { children: "verso keys new NAME" })] })] }) }));
}
