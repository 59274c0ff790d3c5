/** One line of a log: time, level, where it is from, and its text with what was looked for. */

import { Highlight } from "../../components/Highlight.js";
import { lineTime } from "../../components/ticks.js";
import { Link } from "../../router.js";
import type { Span } from "../../text.js";
import { type LogLine, textOf } from "./lines.js";
import { addressOfLine } from "./state.js";
import { levelTone } from "./types.js";

/** Heights of a row, pixels: of one line of text, and of two on narrow screens. */
export const ROW = { wide: 28, narrow: 50 };

interface Props {
  line: LogLine;
  /** What was looked for in the text. */
  contains?: string;
  /** Whether the day is shown; it is where it differs from the line above. */
  day?: boolean;
  score?: boolean;
}

export function LineRow({ line, contains = "", day = true, score }: Props) {
  const text = preview(textOf(line), line, contains);
  const at = lineTime(line.time ?? line.arrived);
  const level = levelOf(line);
  return (
    <Link to={addressOfLine(line.id)} class={`log-row ${levelTone(level) ?? ""}`} data-result>
      <span class={line.time === undefined ? "log-time arrived" : "log-time"} title={line.time ?? `accepted ${line.arrived}`}>
        <span class={day ? "log-day" : "log-day same"}>{at.day.slice(5)}</span> {at.clock}
      </span>
      <span class="log-level">{level ?? ""}</span>
      <span class="log-source" title={sourceOf(line)}>
        {sourceOf(line)}
      </span>
      {score && line.score !== undefined && <span class="log-score">{line.score.toFixed(2)}</span>}
      <span class="log-text">
        {line.text_base64 !== undefined && <span class="badge">bytes</span>}
        <Highlight text={text} spans={found(text, contains)} />
      </span>
    </Link>
  );
}

/** A time at the beginning of a line, as RFC 3339, ISO 8601 or RFC 3164 have it. */
const TIME = /^\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|[+-]\d\d:?\d\d))?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)\]?\s+/u;
const SHOWN = 600;
const BEFORE = 32;

/** Return what a row shows of a text: not the time that stands beside it, and what was looked for. */
export function preview(text: string, line: LogLine, contains = ""): string {
  const start = line.time === undefined ? 0 : (TIME.exec(text)?.[0].length ?? 0);
  const at = contains === "" ? -1 : text.indexOf(contains);
  const from = at < 0 ? start : at < start ? 0 : at - start > 2 * BEFORE ? at - BEFORE : start;
  const part = text.slice(from, from + SHOWN);
  return `${from > start ? "… " : ""}${part}${from + SHOWN < text.length ? " …" : ""}`;
}

/** Return the level of a line: its label's, or of a record its attribute's. */
export function levelOf(line: LogLine): string | undefined {
  const level = line.labels?.["level"] ?? line.attributes?.["level"] ?? line.attributes?.["severity"];
  return typeof level === "string" ? level : undefined;
}

function sourceOf(line: LogLine): string {
  const { service, host, ...others } = line.labels ?? {};
  const named = [service, host].filter((value) => value !== undefined);
  if (named.length > 0) return named.join(" · ");
  return Object.entries(others)
    .filter(([name]) => name !== "level")
    .map(([, value]) => value)
    .slice(0, 2)
    .join(" · ");
}

/** Return where a text stands in another, as it is: the API looks for bytes. */
export function found(text: string, wanted: string): Span[] {
  if (wanted === "") return [];
  const spans: Span[] = [];
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    spans.push({ start: at, end: at + wanted.length, kind: "found" });
  }
  return spans;
}
