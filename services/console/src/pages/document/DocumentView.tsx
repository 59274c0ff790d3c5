/** One document: its exact text, what the vector alone says, how it is stored, what is near it. */

import type { ComponentChildren } from "preact";
import { type ApiRequest, segment, send } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples, type Sample, keywords, python } from "../../components/CodeSamples.js";
import { CopyButton } from "../../components/CopyButton.js";
import { Highlight } from "../../components/Highlight.js";
import { Icon } from "../../components/Icon.js";
import { Badge, Card, Facts, Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Tabs } from "../../components/Tabs.js";
import { toastProblem } from "../../components/Toast.js";
import { conditionText, scalarsOf } from "../../filters.js";
import { count, milliseconds, plural, score, time } from "../../format.js";
import { useRequest } from "../../request.js";
import { Link, addressOf, place, setQuery } from "../../router.js";
import { type Span, fromBase64, hexDump, spanOf } from "../../text.js";
import type { CollectionInfo, Found, StoredRecords, StoredText } from "../../types.js";
import { Draft } from "./Draft.js";
import { Storage } from "./Storage.js";

const NEIGHBOURS = 6;


export function DocumentView({ collection, id }: { collection: CollectionInfo; id: string }) {
  const path = `/v1/documents/${segment(id)}`;
  const request: ApiRequest = { method: "GET", path, query: { collection: collection.name } };
  const stored: ApiRequest = { method: "GET", path: `/v1/records/${segment(id)}`, query: { collection: collection.name } };
  const near: ApiRequest = {
    method: "POST",
    path: "/v1/search",
    body: { collection: collection.name, id, limit: NEIGHBOURS + 4 },
  };
  const document_ = useRequest<StoredText>(request);
  const found = document_.data !== undefined;
  const records = useRequest<StoredRecords>(found && collection.kind === "documents" ? stored : null);
  const neighbours = useRequest<Found>(found && collection.kind === "documents" ? near : null);
  const samples: Sample[] = [
    { title: "Read the exact text", request, python: `text = client.get(${python(id)}${keywords({ collection: collection.name })}).data` },
    { title: "What is near it", request: near, python: `found = client.search(id=${python(id)}${keywords({ collection: collection.name })})` },
  ];
  const back = addressOf("documents", { collection: collection.name });
  const actions = (
    <>
      <CodeSamples samples={samples} />
      {found && (
        <Button small icon="download" onClick={() => void download(request, id)}>
          Download
        </Button>
      )}
    </>
  );
  return (
    <Page
      title={id}
      wide
      about={
        <>
          <Link to={back}>{collection.name}</Link>
          {document_.data?.time != null && <> · {time(document_.data.time)}</>}
        </>
      }
      actions={actions}
    >
      {document_.problem ? (
        document_.problem.code === "document_unknown" ? (
          <Empty icon="document" title="There is no such document">
            <p>
              {collection.name} has no document <code>{id}</code>. It may have been deleted.
            </p>
            <Button to={back}>All documents of {collection.name}</Button>
          </Empty>
        ) : (
          <ErrorState problem={document_.problem} retry={document_.reload} />
        )
      ) : document_.data === undefined ? (
        <Loading lines={8} label="Rebuilding the text" />
      ) : (
        <div class="document-columns">
          <DocumentText stored={document_.data} tookMs={document_.tookMs} collection={collection} records={records.data} />
          <aside class="document-side" aria-label="About this document">
            <About stored={document_.data} collection={collection} records={records.data} />
            {records.data && <Storage records={records.data} />}
            <Neighbours id={id} collection={collection} answer={neighbours} />
          </aside>
        </div>
      )}
    </Page>
  );
}

type View = "text" | "draft" | "bytes";

function DocumentText({
  stored,
  tookMs,
  collection,
  records,
}: {
  stored: StoredText;
  tookMs: number | undefined;
  collection: CollectionInfo;
  records: StoredRecords | undefined;
}) {
  const query = place.value.query;
  const asked = query.get("view") as View | null;
  const view: View = asked === "bytes" || (asked === "draft" && records !== undefined) ? asked : "text";
  const data = stored.text != null ? new TextEncoder().encode(stored.text) : fromBase64(stored.text_base64 ?? "");
  return (
    <div class="card document-text">
      <header class="document-head">
        <Badge tone="good" title="Rebuilt from the vector and the patch; length and checksum are those of the text that came in">
          <Icon name="exact" size={14} /> exact, every byte checked
        </Badge>
        <span class="note">
          {plural(data.length, "byte")}
          {tookMs === undefined ? "" : ` · rebuilt in ${milliseconds(tookMs)}`}
        </span>
        {stored.text != null && <CopyButton text={stored.text} label="Copy the text" />}
      </header>
      <Tabs
        label="Ways to see the document"
        tabs={[
          { id: "text", label: "Exact text" },
          ...(records === undefined ? [] : [{ id: "draft", label: "From the vector alone" }]),
          { id: "bytes", label: "Bytes" },
        ]}
        selected={view}
        onSelect={(one) => setQuery({ view: one === "text" ? null : one }, { replace: true })}
      >
        {view === "text" && <ExactText stored={stored} records={records} />}
        {view === "draft" && records && <Draft records={records} collection={collection} />}
        {view === "bytes" && (
          <pre class="bytes" tabIndex={0}>
            {hexDump(data)}
          </pre>
        )}
      </Tabs>
    </div>
  );
}

function ExactText({ stored, records }: { stored: StoredText; records: StoredRecords | undefined }) {
  if (stored.text == null) {
    return (
      <Empty icon="document" title="These bytes are not text">
        <p>They are not UTF-8, so they are shown as bytes.</p>
        <Button onClick={() => setQuery({ view: "bytes" })}>Show the bytes</Button>
      </Empty>
    );
  }
  const spans = markedSpans(stored.text, records);
  return (
    <pre class="document-exact" data-exact ref={scrollToMark}>
      <Highlight text={stored.text} spans={spans} />
    </pre>
  );
}

/** Return the part that the address marks: code points of the document, or of one of its records. */
function markedSpans(text: string, records: StoredRecords | undefined): Span[] {
  const query = place.value.query;
  const [start, end] = [query.get("start"), query.get("end")].map((value) => (value === null ? Number.NaN : Number(value)));
  if (start === undefined || end === undefined || !(end > start)) return [];
  const chunk = Number(query.get("chunk") ?? 0);
  if (chunk === 0) return [spanOf(text, start, end, "answer")];
  const before = records?.records.slice(0, chunk).map((record) => record.bytes_text);
  if (before === undefined || before.length < chunk || before.some((size) => size == null)) return [];
  const offset = before.reduce<number>((sum, size) => sum + (size ?? 0), 0);
  const head = new TextDecoder().decode(new TextEncoder().encode(text).subarray(0, offset)).length;
  const inner = spanOf(text.slice(head), start, end, "answer");
  return [{ ...inner, start: inner.start + head, end: inner.end + head }];
}

const scrolled = new WeakSet<HTMLElement>();

function scrollToMark(element: HTMLElement | null): void {
  const mark = element?.querySelector<HTMLElement>("mark");
  if (!mark || scrolled.has(mark)) return;
  scrolled.add(mark);
  mark.scrollIntoView({ block: "center" });
}

function About({ stored, collection, records }: { stored: StoredText; collection: CollectionInfo; records: StoredRecords | undefined }) {
  const values = scalarsOf(stored.metadata ?? {});
  const facts: (readonly [string, ComponentChildren])[] = [
    ["Collection", collection.name],
    ["Time", time(stored.time)],
    ["Parts", stored.chunks == null ? "–" : count(stored.chunks)],
    ...(records === undefined
      ? []
      : [["State", records.verified ? <Badge tone="good">verified, text dropped</Badge> : <Badge tone="warning">not yet verified</Badge>] as const]),
  ];
  return (
    <Card title="About">
      <Facts facts={facts} />
      {values.length > 0 && (
        <ul class="chips document-metadata" aria-label="Metadata">
          {values.map((one) => (
            <li key={conditionText(one)}>
              <Link class="chip" title="Documents with this value" to={addressOf("documents", { collection: collection.name, where: [conditionText(one)] })}>
                <span class="chip-field">{one.field}</span> {String(one.value)}
              </Link>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Neighbours({ id, collection, answer }: { id: string; collection: CollectionInfo; answer: ReturnType<typeof useRequest<Found>> }) {
  if (collection.kind === "logs") return null;
  const others = (answer.data?.hits ?? []).filter((hit) => hit.document !== id).slice(0, NEIGHBOURS);
  return (
    <Card title="Nearest" note="by vector" flush>
      {answer.problem ? (
        <ErrorState problem={answer.problem} retry={answer.reload} />
      ) : answer.data === undefined ? (
        <div class="padded">
          <Loading lines={4} />
        </div>
      ) : others.length === 0 ? (
        <p class="padded note">Nothing else is stored.</p>
      ) : (
        <ol class="neighbours">
          {others.map((hit) => (
            <li key={hit.id}>
              <Link data-result to={addressOf("documents", { collection: collection.name, id: hit.document })}>
                <span class="neighbour-name">{hit.document}</span>
                <span class="neighbour-score" title="Cosine of the vectors">
                  {score(hit.score)}
                </span>
                <span class="neighbour-text">{(hit.text ?? "").slice(0, 160)}</span>
              </Link>
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}

/** Save the bytes as they came in. */
async function download(request: ApiRequest, id: string): Promise<void> {
  try {
    const response = await send(request, { accept: "application/octet-stream" });
    const url = URL.createObjectURL(await response.blob());
    const link = window.document.createElement("a");
    link.href = url;
    link.download = id.replace(/[^\p{L}\p{N}._-]+/gu, "_");
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  } catch (error) {
    toastProblem(error);
  }
}

