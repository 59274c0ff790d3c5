/** Form fields with labels, hints and errors that screen readers find. */

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  label: string;
  /** Keep the label from sight, where its place says enough. */
  bare?: boolean;
  hint?: ComponentChildren;
  error?: string | undefined;
  children: (attributes: { id: string; "aria-describedby"?: string; "aria-invalid"?: boolean }) => ComponentChildren;
}

export function Field({ label, bare, hint, error, children }: FieldProps) {
  const id = useId();
  const about = error ?? hint;
  const described = about === undefined ? {} : { "aria-describedby": `${id}-about` };
  return (
    <div class="field">
      <label for={id} class={bare ? "visually-hidden" : undefined}>
        {label}
      </label>
      {children({ id, ...described, ...(error ? { "aria-invalid": true } : {}) })}
      {about !== undefined && (
        <span id={`${id}-about`} class={error ? "hint bad" : "hint"}>
          {about}
        </span>
      )}
    </div>
  );
}

interface InputProps {
  label: string;
  bare?: boolean;
  hint?: ComponentChildren;
  error?: string | undefined;
  value: string;
  type?: "text" | "password" | "number" | "datetime-local" | "date" | "search";
  placeholder?: string;
  name?: string;
  disabled?: boolean;
  required?: boolean;
  min?: string;
  max?: string;
  step?: string;
  pattern?: string;
  autocomplete?: string;
  spellcheck?: boolean;
  onInput: (value: string) => void;
}

export function TextField({ label, bare, hint, error, onInput, ...rest }: InputProps) {
  return (
    <Field label={label} error={error} hint={hint} {...(bare ? { bare } : {})}>
      {(attributes) => (
        <input
          {...(rest as { value: string; type?: "text" })}
          {...attributes}
          class="input"
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

export interface Choice<T extends string> {
  value: T;
  label: string;
  title?: string;
  disabled?: boolean;
}

interface SelectProps<T extends string> {
  label: string;
  bare?: boolean;
  hint?: ComponentChildren;
  value: T;
  choices: readonly Choice<T>[];
  disabled?: boolean;
  onChange: (value: T) => void;
}

export function Select<T extends string>({ label, bare, hint, value, choices, disabled, onChange }: SelectProps<T>) {
  return (
    <Field label={label} hint={hint} {...(bare ? { bare } : {})}>
      {(attributes) => (
        <select
          {...attributes}
          class="input"
          value={value}
          disabled={disabled}
          onChange={(event) => onChange(event.currentTarget.value as T)}
        >
          {choices.map((choice) => (
            <option key={choice.value} value={choice.value} disabled={choice.disabled}>
              {choice.label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

interface SegmentedProps<T extends string> {
  label: string;
  value: T;
  choices: readonly Choice<T>[];
  onChange: (value: T) => void;
}

/** A few choices side by side, of which one holds. */
export function Segmented<T extends string>({ label, value, choices, onChange }: SegmentedProps<T>) {
  const name = useId();
  return (
    <fieldset class="segmented">
      <legend class="visually-hidden">{label}</legend>
      {choices.map((choice) => (
        <label key={choice.value} title={choice.title} class={choice.disabled ? "disabled" : undefined}>
          <input
            type="radio"
            name={name}
            value={choice.value}
            checked={choice.value === value}
            disabled={choice.disabled}
            onChange={() => onChange(choice.value)}
          />
          <span>{choice.label}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface SwitchProps {
  label: string;
  checked: boolean;
  disabled?: boolean;
  onChange: (checked: boolean) => void;
}

export function Switch({ label, checked, disabled, onChange }: SwitchProps) {
  return (
    <label class={disabled ? "switch disabled" : "switch"}>
      <input
        type="checkbox"
        role="switch"
        checked={checked}
        disabled={disabled}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      <span>{label}</span>
    </label>
  );
}
