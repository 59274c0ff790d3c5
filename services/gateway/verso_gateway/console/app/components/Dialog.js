import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./Button.js";
export function Dialog({ title, open, onClose, actions, wide, children }) {
    const element = useRef(null);
    const id = useId();
    useEffect(() => {
        if (open && !element.current?.open)
            element.current?.showModal();
        if (!open && element.current?.open)
            element.current.close();
    }, [open]);
    if (!open)
        return null;
    return (_jsx("dialog", { ref: element, class: wide ? "dialog wide" : "dialog", "aria-labelledby": id, onClose: onClose, onClick: (event) => {
            if (event.target === element.current)
                element.current?.close();
        }, children: _jsxs("div", { class: "dialog-inner", children: [_jsxs("header", { class: "dialog-head", children: [_jsx("h2", { id: id, children: title }), _jsx(Button, { kind: "quiet", icon: "close", label: "Close", onClick: () => element.current?.close() })] }), _jsx("div", { class: "dialog-body", children: children }), actions && _jsx("footer", { class: "dialog-foot", children: actions })] }) }));
}
