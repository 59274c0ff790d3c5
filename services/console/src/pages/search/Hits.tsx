/** Passages, or statements of a log collection, that a search found. */

import { useState } from "preact/hooks";
import { Button } from "../../components/Button.js";
import { Highlight } from "../../components/Highlight.js";
import { Icon } from "../../components/Icon.js";
import { Empty, ErrorState, Loading, Notice } from "../../components/States.js";
import { type Condition, conditionText, includes, scalarsOf } from "../../filters.js";
import { count, milliseconds, plural, score, time } from "../../format.js";
import type { Answer } from "../../request.js";
import { Link, addressOf, setQuery } from "../../router.js";
import { wordSpans } from "../../text.js";
import type { CollectionInfo, Found, Hit } from "../../types.js";
import type { SearchState } from "./state.js";

interface Props {
  hits: Answer<Found>;
  state: SearchState;
  collection: CollectionInfo;
}

export function Hits({ hits, state, collection }: Props) {
  const { data, problem, loading, reload, tookMs } = hits;
  if (problem) return <ErrorState problem={problem} retry={reload} />;
  if (data === undefined) return <Loading lines={6} label="Searching" />;
  if (data.hits.length === 0) {
    return (
      <Empty icon="search" title="Nothing found">
        {state.conditions.length > 0 || state.since || state.until ? (
          <>
            <p>No passage of {collection.name} passes the conditions.</p>
            <Button onClick={() => setQuery({ where: [], since: null, until: null })}>Remove the conditions</Button>
          </>
        ) : (
          <p>
            {state.mode === "sparse" ? "No passage has these words. Try to compare by meaning." : `${collection.name} holds nothing yet.`}
          </p>
        )}
      </Empty>
    );
  }
  const logs = data.hits.some((hit) => hit.statement != null);
  return (
    <section aria-label="Passages" aria-busy={loading} class={loading ? "hits stale" : "hits"}>
      <header class="hits-head">
        <h2>{plural(data.hits.length, logs ? "statement" : "passage")}</h2>
        {tookMs !== undefined && <span class="note">{milliseconds(tookMs)}</span>}
      </header>
      <ol>
        {data.hits.map((hit) => (
          <li key={hit.id}>
            {hit.statement != null ? (
              <StatementHit hit={hit} collection={collection} query={state.query} />
            ) : (
              <PassageHit hit={hit} collection={collection} state={state} />
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}

const SHORT = 560;
const LINES = 8;

/** Return the beginning of a text that is long, cut at a line or a word. */
function beginning(text: string): string {
  const lines = text.split("\n");
  const few = lines.length > LINES ? lines.slice(0, LINES).join("\n") : text;
  if (few.length <= SHORT) return few;
  const space = few.lastIndexOf(" ", SHORT);
  return few.slice(0, space > SHORT / 2 ? space : SHORT);
}

function PassageHit({ hit, collection, state }: { hit: Hit; collection: CollectionInfo; state: SearchState }) {
  const [whole, setWhole] = useState(false);
  const text = (hit.text ?? "").trimEnd(); // the document's page shows the end as well
  const shown = whole ? text : beginning(text);
  return (
    <article class="hit">
      <header>
        <Link class="hit-title" data-result to={addressOf("documents", { collection: collection.name, id: hit.document, chunk: hit.chunk || null })}>
          {hit.document}
        </Link>
        {hit.chunk > 0 && <span class="note">part {hit.chunk + 1}</span>}
        {hit.time != null && <time class="note">{time(hit.time)}</time>}
        <Scores hit={hit} />
      </header>
      {hit.error ? (
        <Notice tone="bad">
          {hit.error.detail} ({hit.error.code})
        </Notice>
      ) : hit.text == null ? (
        <p class="note">Bytes that are not text; the document page shows them.</p>
      ) : (
        <p class="exact">
          <Highlight text={shown} spans={wordSpans(shown, state.query)} />
          {shown.length < text.length && (
            <>
              {" … "}
              <button type="button" class="more" onClick={() => setWhole(true)}>
                show all
              </button>
            </>
          )}
        </p>
      )}
      <Values hit={hit} conditions={state.conditions} />
    </article>
  );
}

function Values({ hit, conditions }: { hit: Hit; conditions: readonly Condition[] }) {
  const values = scalarsOf(hit.metadata ?? {}).slice(0, 8);
  if (values.length === 0) return null;
  return (
    <ul class="chips" aria-label="Metadata">
      {values.map((one) => (
        <li key={conditionText(one)}>
          <button
            type="button"
            class={includes(conditions, one) ? "chip on" : "chip"}
            title="Only documents with this value"
            onClick={() => {
              if (!includes(conditions, one)) setQuery({ where: [...conditions, one].map(conditionText) });
            }}
          >
            <span class="chip-field">{one.field}</span> {String(one.value)}
          </button>
        </li>
      ))}
    </ul>
  );
}

/** The score, and behind it the parts that it is made of. */
function Scores({ hit }: { hit: Hit }) {
  const parts = [
    ["meaning (cosine)", hit.explain?.dense],
    ["words (BM25)", hit.explain?.sparse],
    ["both", hit.explain?.fused],
    ["read by a head", hit.explain?.rerank_score],
  ].filter((part): part is [string, number] => typeof part[1] === "number");
  return (
    <dl class="scores">
      {parts.length === 0 && (
        <div>
          <dt>score</dt>
          <dd>{score(hit.score)}</dd>
        </div>
      )}
      {parts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{score(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

function StatementHit({ hit, collection, query }: { hit: Hit; collection: CollectionInfo; query: string }) {
  return (
    <article class="hit">
      <header>
        <Link class="hit-title mono" data-result to={addressOf("logs", { collection: collection.name, statement: hit.statement_id })}>
          {hit.statement}
        </Link>
      </header>
      <p class="note">
        {plural(hit.count ?? 0, "line")} · {time(hit.first_seen)} to {time(hit.last_seen)} · score {score(hit.score)}
      </p>
      <ul class="hit-lines">
        {(hit.lines ?? []).map((line) => (
          <li key={line.id}>
            <Icon name="logs" size={14} />
            <Link to={addressOf("logs", { collection: collection.name, line: line.id })} title="This line, and those around it">
              <time>{time(line.time)}</time>
            </Link>
            <span class="exact">
              <Highlight text={line.text ?? ""} spans={wordSpans(line.text ?? "", query)} />
            </span>
          </li>
        ))}
      </ul>
      {(hit.count ?? 0) > (hit.lines?.length ?? 0) && (
        <p class="note">and {count((hit.count ?? 0) - (hit.lines?.length ?? 0))} more</p>
      )}
    </article>
  );
}
