/** A text as text, never as HTML, with parts of it marked. */

import type { ComponentChildren } from "preact";
import type { Span } from "../text.js";

/**
 * Marks overlap: each piece of text carries the kinds of all spans that cover it.
 *
 * @param spans in UTF-16 units (`utf16Offsets` makes them out of the API's code points).
 */
export function Highlight({ text, spans }: { text: string; spans: readonly Span[] }) {
  const edges = new Set([0, text.length]);
  for (const span of spans) {
    edges.add(clamp(span.start, text));
    edges.add(clamp(span.end, text));
  }
  const cuts = [...edges].sort((a, b) => a - b);
  const pieces: ComponentChildren[] = [];
  for (let index = 0; index + 1 < cuts.length; index += 1) {
    const [start = 0, end = 0] = [cuts[index], cuts[index + 1]];
    const piece = text.slice(start, end);
    const kinds = spans.filter((span) => span.start <= start && span.end >= end).map((span) => span.kind ?? "answer");
    if (kinds.length === 0) pieces.push(piece);
    else pieces.push(<mark key={start} class={[...new Set(kinds)].join(" ")}>{piece}</mark>);
  }
  return <>{pieces}</>;
}

function clamp(offset: number, text: string): number {
  return Math.max(0, Math.min(text.length, offset));
}
