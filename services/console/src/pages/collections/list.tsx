/** All collections with what they hold, and how a new one is made. */

import { useEffect, useState } from "preact/hooks";
import { type ApiRequest, call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Badge, Card, Page } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { bytes, count, duration, percent } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf, place, setQuery } from "../../router.js";
import { may } from "../../session.js";
import type { CollectionInfo, CollectionList as Listed } from "../../types.js";
import { CreateDialog } from "./CreateDialog.js";
import { described } from "./requests.js";
import type { Described } from "./types.js";

const ALL: ApiRequest = { method: "GET", path: "/v1/collections" };
const DAY_S = 86_400;

export function CollectionList() {
  const listed = useRequest<Listed>(ALL);
  const rows = listed.data?.collections ?? [];
  const figures = useFigures(rows);
  const creating = place.value.query.has("new");
  return (
    <Page
      title="Collections"
      about="Each keeps a vector and a small patch for every text, and returns every byte."
      actions={
        <>
          <CodeSamples samples={[{ title: "List the collections", request: ALL, python: "for one in client.collections():\n    print(one.name)" }]} />
          {may("ingest") && (
            <Button kind="primary" icon="plus" onClick={() => setQuery({ new: true })}>
              New collection
            </Button>
          )}
        </>
      }
    >
      <Card flush>{content()}</Card>
      <CreateDialog open={creating} onClose={() => setQuery({ new: null }, { replace: true })} />
    </Page>
  );

  function content() {
    if (listed.problem && !listed.data) return <ErrorState problem={listed.problem} retry={listed.reload} />;
    if (!listed.data) return <div class="card-body"><Loading lines={5} /></div>;
    if (rows.length === 0) {
      return (
        <Empty icon="collections" title="There is no collection yet">
          <p>The first worker makes the collection <code>default</code>.</p>
        </Empty>
      );
    }
    return (
      <Table
        caption="Collections"
        rows={rows}
        rowKey={(row) => row.name}
        to={(row) => addressOf(`collections/${row.name}`)}
        columns={[
          { title: "Name", cell: (row) => row.name },
          {
            title: "Kind",
            minor: true,
            cell: (row) => <Badge tone={row.kind === "logs" ? "accent" : "neutral"}>{row.kind}</Badge>,
          },
          { title: "Holds", numeric: true, cell: (row) => holds(row, figures.get(row.name)) },
          { title: "Verified", width: "150px", minor: true, cell: (row) => <Verified found={figures.get(row.name)} /> },
          { title: "Text", numeric: true, cell: (row) => sizeOf(figures.get(row.name)?.bytes_text) },
          { title: "Kept", numeric: true, minor: true, cell: (row) => sizeOf(keptOf(figures.get(row.name))) },
          { title: "Retention", numeric: true, minor: true, cell: (row) => retention(row) },
        ]}
      />
    );
  }
}

/** Ask for the figures of one collection after another: each is a small job. */
function useFigures(rows: readonly CollectionInfo[]): ReadonlyMap<string, Described> {
  const [found, setFound] = useState<ReadonlyMap<string, Described>>(new Map());
  const names = rows.map((row) => row.name).join(" ");
  useEffect(() => {
    const given = new AbortController();
    void (async () => {
      for (const name of names === "" ? [] : names.split(" ")) {
        try {
          const one = await call<Described>(described(name), { signal: given.signal });
          setFound((before) => new Map(before).set(name, one));
        } catch {
          if (given.signal.aborted) return; // a collection that cannot be counted has a dash
        }
      }
    })();
    return () => given.abort();
  }, [names]);
  return found;
}

function Verified({ found }: { found: Described | undefined }) {
  if (!found) return <span class="note">…</span>;
  if (found.documents === 0) return <span class="note">–</span>;
  const share = found.verified / found.documents;
  return (
    <span class="verified">
      <Meter label="Verified" value={share} tone={share === 1 ? "good" : "accent"} text={percent(share)} />
      <span>{share === 1 ? "all" : percent(Math.min(share, 0.999), 1)}</span>
    </span>
  );
}

function holds(row: CollectionInfo, found: Described | undefined) {
  if (!found) return "…";
  return (
    <>
      {count(found.documents)} <span class="note">{row.kind === "logs" ? "lines" : "docs"}</span>
      {found.unreadable > 0 && <Badge tone="bad">{count(found.unreadable)} unreadable</Badge>}
    </>
  );
}

function keptOf(found: Described | undefined): number | undefined {
  return found?.kept ? found.kept.bytes_memory + (found.kept.bytes_disk ?? 0) : undefined;
}

function sizeOf(value: number | undefined): string {
  return value === undefined ? "–" : bytes(value);
}

function retention(row: CollectionInfo) {
  return row.retention_days ? duration(row.retention_days * DAY_S) : <span class="note">for good</span>;
}
