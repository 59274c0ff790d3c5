/** What pages are made of: header, cards, figures, badges. */

import type { ComponentChildren } from "preact";

interface PageProps {
  title: string;
  /** One sentence on what is seen here. */
  about?: ComponentChildren;
  actions?: ComponentChildren;
  /** Hide the title from sight: the page speaks for itself. */
  quiet?: boolean;
  wide?: boolean;
  children: ComponentChildren;
}

/** A page with its only first-level heading. */
export function Page({ title, about, actions, quiet, wide, children }: PageProps) {
  document.title = `${title} · Verso`;
  return (
    <div class={wide ? "page wide" : "page"}>
      <header class={quiet ? "page-head visually-hidden" : "page-head"}>
        <div>
          <h1>{title}</h1>
          {about && <p class="about">{about}</p>}
        </div>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

interface CardProps {
  title?: ComponentChildren;
  /** A word on what the card shows, beside its title. */
  note?: ComponentChildren;
  actions?: ComponentChildren;
  /** Without padding: for tables and lists. */
  flush?: boolean;
  children: ComponentChildren;
}

export function Card({ title, note, actions, flush, children }: CardProps) {
  return (
    <section class={flush ? "card flush" : "card"}>
      {(title || actions) && (
        <header class="card-head">
          <div class="card-title">
            {title && <h2>{title}</h2>}
            {note && <span class="note">{note}</span>}
          </div>
          {actions && <div class="actions">{actions}</div>}
        </header>
      )}
      <div class="card-body">{children}</div>
    </section>
  );
}

export type Tone = "neutral" | "accent" | "good" | "warning" | "bad";

/** A short word on a state. */
export function Badge({ tone = "neutral", children, title }: { tone?: Tone; children: ComponentChildren; title?: string }) {
  return (
    <span class={`badge ${tone}`} title={title}>
      {children}
    </span>
  );
}

/** One figure with its name, and what stands behind it. */
export function Stat({
  label,
  value,
  unit,
  note,
  tone,
}: {
  label: string;
  value: ComponentChildren;
  unit?: string;
  note?: ComponentChildren;
  tone?: Tone;
}) {
  return (
    <div class={`stat ${tone ?? ""}`}>
      <dt>{label}</dt>
      <dd>
        <span class="stat-value">{value}</span>
        {unit && <span class="stat-unit"> {unit}</span>}
        {note && <span class="stat-note">{note}</span>}
      </dd>
    </div>
  );
}

/** Figures side by side. */
export function Stats({ children }: { children: ComponentChildren }) {
  return <dl class="stats">{children}</dl>;
}

/** Names and values, one a line. */
export function Facts({ facts }: { facts: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A key of the keyboard. */
export function Key({ children }: { children: string }) {
  return <kbd>{children}</kbd>;
}
