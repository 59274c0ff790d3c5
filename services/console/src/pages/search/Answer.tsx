/** The answer to a question, or that there is none, in the exact text of its source. */

import type { ComponentChildren } from "preact";
import { Icon } from "../../components/Icon.js";
import { Highlight } from "../../components/Highlight.js";
import { Badge } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { ErrorState, Loading } from "../../components/States.js";
import { milliseconds, percent, plural } from "../../format.js";
import { type Answer, useRequest } from "../../request.js";
import { Link, addressOf } from "../../router.js";
import { type Span, spanOf } from "../../text.js";
import type { AnswerPart, Answered, Batch, CollectionInfo, StoredText } from "../../types.js";

interface Props {
  answer: Answer<Answered>;
  collection: CollectionInfo;
}

export function AnswerCard({ answer, collection }: Props) {
  const { data, problem, loading, reload, tookMs } = answer;
  if (problem) {
    return (
      <Frame title="Answer">
        <ErrorState problem={problem} retry={reload} />
      </Frame>
    );
  }
  if (data === undefined || loading) {
    return (
      <Frame title="Answer" note="reading the nearest passages">
        <Loading lines={2} label="Reading the nearest passages" />
      </Frame>
    );
  }
  return <Read data={data} collection={collection} tookMs={tookMs} />;
}

function Read({ data, collection, tookMs }: { data: Answered; collection: CollectionInfo; tookMs: number | undefined }) {
  const ids = data.answers.map((part) => part.id).filter((id): id is string => typeof id === "string");
  const sources = useRequest<Batch<StoredText>>(
    ids.length === 0 || collection.kind === "logs"
      ? null
      : { method: "POST", path: "/v1/reconstruct", body: { collection: collection.name, ids: [...new Set(ids)] } },
  );
  const textOf = (id: string | null | undefined) =>
    sources.data?.results.find((one) => (one.chunk == null ? one.id : `${one.id}#${one.chunk}`) === id)?.text ?? undefined;
  const best = data.answers[0];
  const note = [plural(data.contexts, "passage") + " read", tookMs === undefined ? "" : milliseconds(tookMs)].filter(Boolean).join(" · ");
  if (!data.answered || best === undefined) {
    return (
      <Frame title="No answer" note={note} tone="none">
        <p class="answer-none">
          {data.contexts === 0
            ? "Nothing was found to read."
            : "None of the nearest passages answers this question. They are listed below, the nearest first."}
        </p>
        {best !== undefined && (
          <details class="answer-guess">
            <summary>The closest reading, which was not good enough</summary>
            <Quote part={best} text={textOf(best.id)} collection={collection} threshold={data.null_threshold} />
          </details>
        )}
      </Frame>
    );
  }
  const others = data.answers.slice(1).filter((part) => part.score - part.null_score > data.null_threshold && part.text !== best.text);
  return (
    <Frame title="Answer" note={note} tone="found">
      <p class="answer-text" lang="">
        {best.text ?? "(bytes that are not text)"}
      </p>
      <Quote part={best} text={textOf(best.id)} collection={collection} threshold={data.null_threshold} />
      {others.length > 0 && (
        <details class="answer-others">
          <summary>{plural(others.length, "further answer")}</summary>
          {others.map((part, index) => (
            <Quote key={index} part={part} text={textOf(part.id)} collection={collection} threshold={data.null_threshold} />
          ))}
        </details>
      )}
    </Frame>
  );
}

function Frame({ title, note, tone, children }: { title: string; note?: string; tone?: "found" | "none"; children: ComponentChildren }) {
  return (
    <section class={`card answer-card ${tone ?? ""}`} aria-live="polite" aria-label={title}>
      <header class="answer-head">
        <h2>{title}</h2>
        {note && <span class="note">{note}</span>}
      </header>
      {children}
    </section>
  );
}

/** Answers beyond this margin are as sure as the head gets. */
const CLEAR = 16;

function Quote({
  part,
  text,
  collection,
  threshold,
}: {
  part: AnswerPart;
  text: string | undefined;
  collection: CollectionInfo;
  threshold: number;
}) {
  const margin = part.score - part.null_score;
  return (
    <figure class="quote">
      {text !== undefined && part.start != null && part.end != null && (
        <blockquote class="exact">
          <Passage text={text} part={part} />
        </blockquote>
      )}
      <figcaption>
        {part.id != null && (
          <Link class="source" data-result to={sourceOf(part, collection)}>
            <Icon name={collection.kind === "logs" ? "logs" : "document"} size={15} />
            {part.document ?? part.id}
          </Link>
        )}
        {part.page != null && <span class="note">page {part.page}</span>}
        <Badge tone="good" title="Every byte of the source was rebuilt from its vector and patch, and checked">
          <Icon name="exact" size={14} /> exact text
        </Badge>
        {part.confidence != null ? (
          <span class="certainty" title="Calibrated: of answers with this confidence, this share is right">
            <Meter label="Confidence" value={part.confidence} text={percent(part.confidence)} />
            {percent(part.confidence)} confidence
          </span>
        ) : (
          <span class="certainty" title="Score of the answer above that of “there is no answer here”; the tick is what it must pass">
            <Meter label="Margin over no answer" value={margin + CLEAR} max={2 * CLEAR} mark={threshold + CLEAR} text={margin.toFixed(1)} />
            {margin >= 0 ? "+" : "−"}
            {Math.abs(margin).toFixed(1)} over “no answer” ({threshold.toFixed(1)} needed)
          </span>
        )}
      </figcaption>
    </figure>
  );
}

const BEFORE = 220;
const AFTER = 320;

/** The record's text around the answer, cut at white space; the rest is one click away. */
function Passage({ text, part }: { text: string; part: AnswerPart }) {
  const spans: Span[] = [spanOf(text, part.start ?? 0, part.end ?? 0, "answer")];
  if (part.evidence.start != null && part.evidence.end != null) {
    spans.push(spanOf(text, part.evidence.start, part.evidence.end, "evidence"));
  }
  const first = Math.min(...spans.map((span) => span.start));
  const last = Math.max(...spans.map((span) => span.end));
  const from = first <= BEFORE ? 0 : nextSpace(text, first - BEFORE);
  const to = text.length - last <= AFTER ? text.length : nextSpace(text, last + AFTER);
  const moved = spans.map((span) => ({ ...span, start: span.start - from, end: span.end - from }));
  return (
    <>
      {from > 0 && <span class="cut">… </span>}
      <Highlight text={text.slice(from, to)} spans={moved} />
      {to < text.length && <span class="cut"> …</span>}
    </>
  );
}

function nextSpace(text: string, from: number): number {
  const at = text.slice(from).search(/\s/);
  return at === -1 || at > 80 ? from : from + at;
}

function sourceOf(part: AnswerPart, collection: CollectionInfo): string {
  if (collection.kind === "logs") return addressOf("logs", { collection: collection.name, line: part.id });
  return addressOf("documents", {
    collection: collection.name,
    id: part.document,
    chunk: part.chunk,
    start: part.start,
    end: part.end,
  });
}
