import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
import { useId } from "preact/hooks";
export function Field({ label, bare, hint, error, children }) {
    const id = useId();
    const about = error ?? hint;
    const described = about === undefined ? {} : { "aria-describedby": `${id}-about` };
    return (_jsxs("div", { class: "field", children: [_jsx("label", { for: id, class: bare ? "visually-hidden" : undefined, children: label }), children({ id, ...described, ...(error ? { "aria-invalid": true } : {}) }), about !== undefined && (_jsx("span", { id: `${id}-about`, class: error ? "hint bad" : "hint", children: about }))] }));
}
export function TextField({ label, bare, hint, error, onInput, ...rest }) {
    return (_jsx(Field, { label: label, error: error, hint: hint, ...(bare ? { bare } : {}), children: (attributes) => (_jsx("input", { ...rest, ...attributes, class: "input", onInput: (event) => onInput(event.currentTarget.value) })) }));
}
export function Select({ label, bare, hint, value, choices, disabled, onChange }) {
    return (_jsx(Field, { label: label, hint: hint, ...(bare ? { bare } : {}), children: (attributes) => (_jsx("select", { ...attributes, class: "input", value: value, disabled: disabled, onChange: (event) => onChange(event.currentTarget.value), children: choices.map((choice) => (_jsx("option", { value: choice.value, disabled: choice.disabled, children: choice.label }, choice.value))) })) }));
}
/** A few choices side by side, of which one holds. */
export function Segmented({ label, value, choices, onChange }) {
    const name = useId();
    return (_jsxs("fieldset", { class: "segmented", children: [_jsx("legend", { class: "visually-hidden", children: label }), choices.map((choice) => (_jsxs("label", { title: choice.title, class: choice.disabled ? "disabled" : undefined, children: [_jsx("input", { type: "radio", name: name, value: choice.value, checked: choice.value === value, disabled: choice.disabled, onChange: () => onChange(choice.value) }), _jsx("span", { children: choice.label })] }, choice.value)))] }));
}
export function Switch({ label, checked, disabled, onChange }) {
    return (_jsxs("label", { class: disabled ? "switch disabled" : "switch", children: [_jsx("input", { type: "checkbox", role: "switch", checked: checked, disabled: disabled, onChange: (event) => onChange(event.currentTarget.checked) }), _jsx("span", { children: label })] }));
}
