/** Bars: one value of a range, and parts of a whole. */

import type { Tone } from "./Layout.js";

interface MeterProps {
  /** What is measured, for screen readers. */
  label: string;
  value: number;
  max?: number;
  /** A value to pass, drawn as a tick. */
  mark?: number;
  tone?: Tone;
  /** The value as it is read out. */
  text?: string;
}

export function Meter({ label, value, max = 1, mark, tone = "accent", text }: MeterProps) {
  const share = (part: number) => `${Math.max(0, Math.min(1, max > 0 ? part / max : 0)) * 100}%`;
  return (
    <span
      class={`meter ${tone}`}
      role="meter"
      aria-label={label}
      aria-valuenow={Number(value.toFixed(4))}
      aria-valuemin={0}
      aria-valuemax={max}
      aria-valuetext={text}
    >
      <span class="meter-fill" style={{ width: share(value) }} />
      {mark !== undefined && <span class="meter-mark" style={{ left: share(mark) }} />}
    </span>
  );
}

export interface Part {
  label: string;
  value: number;
  /** The value as it is shown. */
  text: string;
  /** One of the series colours, 1 to 6. */
  colour: 1 | 2 | 3 | 4 | 5 | 6;
}

/** Parts of a whole in one bar, with a legend that needs no colour to be read. */
export function Parts({ label, parts, total }: { label: string; parts: readonly Part[]; total?: number }) {
  const whole = total ?? parts.reduce((sum, part) => sum + part.value, 0);
  const shown = parts.filter((part) => part.value > 0);
  return (
    <figure class="parts">
      <div class="parts-bar" role="img" aria-label={`${label}: ${shown.map((part) => `${part.label} ${part.text}`).join(", ")}`}>
        {shown.map((part) => (
          <span key={part.label} class={`series-${part.colour}`} style={{ width: `${whole > 0 ? (part.value / whole) * 100 : 0}%` }} />
        ))}
      </div>
      <ul class="legend">
        {shown.map((part) => (
          <li key={part.label}>
            <span class={`swatch series-${part.colour}`} />
            {part.label} <b>{part.text}</b>
          </li>
        ))}
      </ul>
    </figure>
  );
}
