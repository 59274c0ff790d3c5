/** The map of a collection: what is drawn is in the address. */

import { useMemo, useState } from "preact/hooks";
import type { ApiRequest } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples, python } from "../../components/CodeSamples.js";
import { Segmented, Select, TextField } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { Empty, ErrorState, Loading, Notice } from "../../components/States.js";
import { chosen, remember, useCollections } from "../../collections.js";
import { count, milliseconds, percent } from "../../format.js";
import { useRequest } from "../../request.js";
import { place, setQuery } from "../../router.js";
import type { CollectionInfo } from "../../types.js";
import { MapCanvas } from "./MapCanvas.js";
import { MapLegend } from "./MapLegend.js";
import { MapTable } from "./MapTable.js";
import { SelectedPoint } from "./SelectedPoint.js";
import type { Projected } from "./types.js";

const SIZES = ["1000", "5000", "20000"];
type Colouring = "group" | "label" | "none";

export function MapView() {
  const all = useCollections();
  const { query } = place.value;
  if (all === null) return <Card><Loading lines={5} /></Card>;
  const collection = chosen(query.get("collection"), all);
  if (collection === undefined) {
    return (
      <Empty icon="map" title="There is no collection to draw">
        <p>Make one, and ingest some documents.</p>
      </Empty>
    );
  }
  return <CollectionMap key={collection.name} collection={collection} all={all} />;
}

function CollectionMap({ collection, all }: { collection: CollectionInfo; all: readonly CollectionInfo[] }) {
  const { query } = place.value;
  const isLog = collection.kind === "logs";
  const size = SIZES.includes(query.get("limit") ?? "") ? (query.get("limit") ?? "5000") : "5000";
  const key = query.get("key") ?? "";
  const asked = query.get("colour");
  const colouring: Colouring = asked === "none" || (asked === "label" && !isLog) ? asked : "group";
  const request: ApiRequest = {
    method: "POST",
    path: "/v1/project",
    body: {
      collection: collection.name,
      limit: Number(size),
      colour: colouring,
      ...(colouring === "label" ? { label_key: key } : {}),
    },
  };
  const ready = colouring !== "label" || key !== "";
  const answer = useRequest<Projected>(ready ? request : null);
  const keys = Object.keys(collection.indexes ?? {});

  return (
    <>
      <Card>
        <div class="map-controls">
          <Select
            label="Collection"
            value={collection.name}
            choices={all.map((one) => ({ value: one.name, label: one.name }))}
            onChange={(name) => {
              remember(name);
              setQuery({ collection: name, point: null, key: null, colour: null });
            }}
          />
          <Select
            label="Sample"
            value={size}
            choices={SIZES.map((one) => ({ value: one, label: `${count(Number(one))} ${isLog ? "statements" : "records"}` }))}
            onChange={(limit) => setQuery({ limit, point: null })}
          />
          <div class="field">
            <span class="field-name">Coloured by</span>
            <Segmented
              label="Coloured by"
              value={colouring}
              choices={[
                { value: "group", label: "Group", title: "groups of near vectors" },
                { value: "label", label: "Label", title: "a value of the metadata", disabled: isLog },
                { value: "none", label: "Nothing" },
              ]}
              onChange={(colour) => setQuery({ colour: colour === "group" ? null : colour, key: colour === "label" ? (keys[0] ?? null) : null, point: null })}
            />
          </div>
          {colouring === "label" && <KeyField value={key} />}
          <div class="map-samples">
            <CodeSamples samples={[{ title: "Draw a map", request, python: `from verso_client import ProjectRequest\n\nasked = ${python(request.body)}\nprint(client.project(ProjectRequest(**asked)).explained)` }]} />
          </div>
        </div>
      </Card>
      {!ready ? (
        <Card>
          <Empty icon="map" title="Which label?">
            <p>Name a key of the documents' metadata, such as <code>host</code>.</p>
          </Empty>
        </Card>
      ) : answer.problem && !answer.data ? (
        <Card><ErrorState problem={answer.problem} retry={answer.reload} /></Card>
      ) : !answer.data || answer.loading ? (
        <Card><Loading lines={8} label="The map is drawn" /></Card>
      ) : answer.data.ids.length === 0 ? (
        <Card>
          <Empty icon="map" title="There is nothing to draw yet">
            <p>The collection {collection.name} holds no {isLog ? "statement" : "record"} with a vector.</p>
          </Empty>
        </Card>
      ) : (
        <Drawn found={answer.data} collection={collection} colouring={colouring} tookMs={answer.tookMs} />
      )}
    </>
  );
}

function KeyField({ value }: { value: string }) {
  const [typed, setTyped] = useState(value);
  return (
    <form
      class="map-key"
      onSubmit={(event) => {
        event.preventDefault();
        setQuery({ key: typed.trim(), point: null });
      }}
    >
      <TextField label="Metadata key" value={typed} placeholder="host" spellcheck={false} onInput={setTyped} />
      <Button type="submit">Draw</Button>
    </form>
  );
}

function Drawn(props: { found: Projected; collection: CollectionInfo; colouring: Colouring; tookMs: number | undefined }) {
  const { found, collection, colouring, tookMs } = props;
  const [hidden, setHidden] = useState<ReadonlySet<number>>(new Set());
  const { query } = place.value;
  const asTable = query.get("as") === "table";
  const point = query.get("point");
  const at = useMemo(() => (point === null ? -1 : found.ids.indexOf(point)), [found, point]);
  const selected = at < 0 ? null : at;
  const select = (index: number | null) =>
    setQuery({ point: index === null ? null : (found.ids[index] ?? null) }, { replace: true });
  const nameOf = (index: number) => {
    const colour = found.colours[found.colour[index] ?? -1];
    const what = found.templates?.[index] ?? found.ids[index] ?? "";
    const lines = found.lines?.[index];
    return [what, lines === undefined ? "" : `${count(lines)} lines`, colour && colouring === "label" ? colour.label : ""]
      .filter(Boolean)
      .join(" · ");
  };
  const [across = 0, up = 0] = found.explained;
  const isLog = collection.kind === "logs";
  return (
    <>
      {(found.unread ?? 0) > 0 && (
        <Notice tone="warning">{count(found.unread ?? 0)} records of the sample have no vector in the store.</Notice>
      )}
      <div class="map-columns">
        <Card
          flush
          title={`${count(found.ids.length)} of ${count(found.records)} ${isLog ? "statements" : "records"}`}
          note={`two directions show ${percent(across + up)} of the variance${tookMs === undefined ? "" : ` · ${milliseconds(tookMs)}`}`}
          actions={
            <Segmented
              label="Shown as"
              value={asTable ? "table" : "map"}
              choices={[
                { value: "map", label: "Map" },
                { value: "table", label: "Table" },
              ]}
              onChange={(value) => setQuery({ as: value === "table" ? "table" : null }, { replace: true })}
            />
          }
        >
          {asTable ? (
            <MapTable found={found} hidden={hidden} selected={selected} onSelect={select} />
          ) : (
            <MapCanvas found={found} hidden={hidden} selected={selected} onSelect={select} nameOf={nameOf} />
          )}
        </Card>
        <div class="map-side">
          <SelectedPoint found={found} selected={selected} collection={collection} />
          <MapLegend found={found} colouring={colouring} hidden={hidden} onHidden={setHidden} />
        </div>
      </div>
    </>
  );
}
