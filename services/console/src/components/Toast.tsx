/** Short messages on what just happened, at the edge of the page. */

import { signal } from "@preact/signals";
import { problemFrom } from "../api.js";
import { Icon } from "./Icon.js";

interface Message {
  id: number;
  text: string;
  tone: "good" | "bad";
}

const messages = signal<readonly Message[]>([]);
const SHOWN_MS = 6000;
let last = 0;

/** Show a message for some seconds. */
export function toast(text: string, tone: "good" | "bad" = "good"): void {
  last += 1;
  const id = last;
  messages.value = [...messages.value, { id, text, tone }];
  setTimeout(() => dismiss(id), SHOWN_MS);
}

/** Show why something failed. */
export function toastProblem(error: unknown): void {
  const problem = problemFrom(error);
  toast(`${problem.detail} (${problem.code})`, "bad");
}

function dismiss(id: number): void {
  messages.value = messages.value.filter((message) => message.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" aria-live="polite" role="status">
      {messages.value.map((message) => (
        <div key={message.id} class={`toast ${message.tone}`}>
          <Icon name={message.tone === "good" ? "check" : "warning"} size={16} />
          <span>{message.text}</span>
          <button type="button" aria-label="Dismiss" onClick={() => dismiss(message.id)}>
            <Icon name="close" size={14} />
          </button>
        </div>
      ))}
    </div>
  );
}
