/** What stands where content does not (yet): empty, loading, failed, not allowed. */

import type { ComponentChildren } from "preact";
import type { Problem } from "../api.js";
import type { Scope } from "../session.js";
import { caller } from "../session.js";
import { Button } from "./Button.js";
import { Icon, type IconName } from "./Icon.js";

/** Nothing is there, and what to do about it. */
export function Empty({ icon = "info", title, children }: { icon?: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="state">
      <span class="state-icon">
        <Icon name={icon} size={24} />
      </span>
      <p class="state-title">{title}</p>
      {children && <div class="state-text">{children}</div>}
    </div>
  );
}

/** Lines that stand for what is on its way. */
export function Loading({ lines = 3, label = "Loading" }: { lines?: number; label?: string }) {
  return (
    <div class="skeleton" role="status">
      <span class="visually-hidden">{label}</span>
      {Array.from({ length: lines }, (_, index) => (
        <span key={index} class={`bar w${index % 4}`} />
      ))}
    </div>
  );
}

/** A request failed: what the platform says, its code, and what helps. */
export function ErrorState({ problem, retry }: { problem: Problem; retry?: () => void }) {
  if (problem.status === 403) return <NoPermission detail={problem.detail} />;
  return (
    <div class="state error" role="alert">
      <span class="state-icon">
        <Icon name="warning" size={24} />
      </span>
      <p class="state-title">{sentence(problem.title)}</p>
      <p class="state-text">{problem.detail}</p>
      <p class="state-code">
        <a href={`/docs/errors/${problem.code}`} target="_blank" rel="noreferrer">
          {problem.code}
        </a>
        {problem.requestId && <span> · request {problem.requestId.slice(0, 12)}</span>}
      </p>
      {retry && (
        <Button icon="refresh" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** The caller's key does not allow this. */
export function NoPermission({ scope, detail }: { scope?: Scope; detail?: string }) {
  return (
    <div class="state">
      <span class="state-icon">
        <Icon name="lock" size={24} />
      </span>
      <p class="state-title">Your key does not allow this</p>
      <div class="state-text">
        {scope ? (
          <p>
            It needs the scope <code>{scope}</code>; the key <b>{caller.value?.name}</b> has{" "}
            {caller.value?.scopes.join(", ") || "none"}.
          </p>
        ) : (
          <p>{detail}</p>
        )}
        <p>
          The platform's operator can make one: <code>verso keys new NAME --scope {scope ?? "SCOPE"}</code>
        </p>
      </div>
    </div>
  );
}

/** A line above content that is still shown: a failure, or a remark. */
export function Notice({ tone = "neutral", children }: { tone?: "neutral" | "warning" | "bad" | "good"; children: ComponentChildren }) {
  return (
    <div class={`notice ${tone}`} role={tone === "bad" ? "alert" : "status"}>
      <Icon name={tone === "good" ? "check" : tone === "neutral" ? "info" : "warning"} size={16} />
      <div>{children}</div>
    </div>
  );
}

/** Partitions of a collection that their ledgers no longer have: what is shown leaves them out. */
export function MissingNotice({ names }: { names: readonly string[] | undefined }) {
  if (names === undefined || names.length === 0) return null;
  return (
    <Notice tone="bad">
      {names.length === 1 ? "The ledger of this partition no longer has it" : "The ledgers of these partitions no longer have them"}: {names.join(", ")}.
      What {names.length === 1 ? "it" : "they"} held is not in what is shown.{" "}
      <a href="/docs/errors/partition_missing" target="_blank" rel="noreferrer">
        What to do
      </a>
    </Notice>
  );
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
