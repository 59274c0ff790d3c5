/** The documents of a collection, the newest or the smallest id first, a page at a time. */

import { useEffect, useState } from "preact/hooks";
import { type ApiRequest, call } from "../../api.js";
import { remember } from "../../collections.js";
import { Button } from "../../components/Button.js";
import { CodeSamples, keywords } from "../../components/CodeSamples.js";
import { Segmented, Select, TextField } from "../../components/Field.js";
import { Badge, Card, Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { type Column, Table } from "../../components/Table.js";
import { toastProblem } from "../../components/Toast.js";
import { conditionText, conditionsOf, filterOf, scalarsOf } from "../../filters.js";
import { bytes, count, time } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf, navigate, place, setQuery } from "../../router.js";
import type { CollectionInfo, DocumentInfo, DocumentPage } from "../../types.js";

const PAGE = 50;

const COLUMNS: readonly Column<DocumentInfo>[] = [
  { title: "Document", cell: (row) => row.id },
  { title: "Time", cell: (row) => <time class="nowrap">{time(row.time)}</time>, minor: true },
  {
    title: "Metadata",
    minor: true,
    cell: (row) => (
      <span class="list-metadata">
        {scalarsOf(row.metadata ?? {})
          .slice(0, 3)
          .map((one) => `${one.field} ${one.value}`)
          .join(" · ")}
      </span>
    ),
  },
  { title: "Parts", numeric: true, minor: true, cell: (row) => (row.chunks == null ? "–" : count(row.chunks)) },
  { title: "Text", numeric: true, cell: (row) => bytes(row.bytes) },
  {
    title: "State",
    width: "110px",
    cell: (row) => (row.verified ? <Badge tone="good">verified</Badge> : <Badge tone="warning">not yet verified</Badge>),
  },
];

export function DocumentList({ collection, found }: { collection: CollectionInfo; found: readonly CollectionInfo[] }) {
  const query = place.value.query;
  const order = query.get("order") === "id" ? "id" : "time";
  const conditions = conditionsOf(query.getAll("where"));
  const filter = filterOf(conditions);
  const body = {
    order,
    ...(order === "time" ? { descending: true } : {}),
    limit: PAGE,
    ...(filter === undefined ? {} : { filter }),
  };
  const request: ApiRequest = { method: "POST", path: `/v1/collections/${collection.name}/documents/query`, body };
  const first = useRequest<DocumentPage>(collection.kind === "logs" ? null : request);
  const [more, setMore] = useState<DocumentPage[]>([]);
  const [busy, setBusy] = useState(false);
  const [id, setId] = useState("");
  useEffect(() => setMore([]), [first.data]);
  const rows = [first.data, ...more].flatMap((page) => page?.documents ?? []);
  const cursor = (more.at(-1) ?? first.data)?.next_cursor;
  const next = async () => {
    setBusy(true);
    try {
      const page = await call<DocumentPage>({ ...request, body: { ...body, cursor } });
      setMore((before) => [...before, page]);
    } catch (error) {
      toastProblem(error);
    }
    setBusy(false);
  };
  const sample = {
    title: "List documents",
    request,
    python: `page = client.query(${JSON.stringify(collection.name)}${keywords({ ...body })})\nfor document in page.documents:\n    print(document.id, document.bytes)`,
  };
  return (
    <Page
      title="Documents"
      wide
      about="What a collection holds. Texts are dropped once they are verified, and rebuilt byte for byte when they are read."
      actions={<CodeSamples samples={collection.kind === "logs" ? [] : [sample]} />}
    >
      <div class="list-controls">
        <Select
          label="Collection"
          value={collection.name}
          choices={found.map((one) => ({ value: one.name, label: one.name }))}
          onChange={(name) => {
            remember(name);
            setQuery({ collection: name, where: [] });
          }}
        />
        <Segmented
          label="Order"
          value={order}
          choices={[
            { value: "time", label: "Newest first" },
            { value: "id", label: "By id" },
          ]}
          onChange={(value) => setQuery({ order: value === "id" ? value : null })}
        />
        <form
          class="list-open"
          onSubmit={(event) => {
            event.preventDefault();
            if (id.trim() !== "") navigate(addressOf("documents", { collection: collection.name, id: id.trim() }));
          }}
        >
          <TextField label="Open by id" bare placeholder="Open by id" value={id} onInput={setId} />
          <Button type="submit" disabled={id.trim() === ""}>
            Open
          </Button>
        </form>
      </div>
      {conditions.length > 0 && (
        <ul class="chips" aria-label="Conditions that hold">
          {conditions.map((condition) => (
            <li key={conditionText(condition)}>
              <button type="button" class="chip on" onClick={() => setQuery({ where: conditions.filter((one) => one !== condition).map(conditionText) })}>
                <span class="chip-field">{condition.field}</span> {String(condition.value)} ×
              </button>
            </li>
          ))}
        </ul>
      )}
      {collection.kind === "logs" ? (
        <Empty icon="logs" title={`${collection.name} holds log lines`}>
          <p>Lines are kept together, with one vector a statement.</p>
          <Button to={addressOf("logs", { collection: collection.name })}>Read its lines</Button>
        </Empty>
      ) : first.problem ? (
        <ErrorState problem={first.problem} retry={first.reload} />
      ) : first.data === undefined ? (
        <Loading lines={8} />
      ) : rows.length === 0 ? (
        <Empty icon="document" title={filter === undefined ? `${collection.name} is empty` : "No document passes the conditions"}>
          {filter === undefined && (
            <p>
              Send documents: <code>verso ingest FILE --collection {collection.name}</code>
            </p>
          )}
        </Empty>
      ) : (
        <Card flush>
          <Table
            caption={`Documents of ${collection.name}`}
            columns={COLUMNS}
            rows={rows}
            rowKey={(row) => row.id}
            to={(row) => addressOf("documents", { collection: collection.name, id: row.id })}
          />
          {cursor != null && (
            <div class="list-more">
              <Button busy={busy} onClick={() => void next()}>
                Show {PAGE} more
              </Button>
            </div>
          )}
        </Card>
      )}
    </Page>
  );
}
