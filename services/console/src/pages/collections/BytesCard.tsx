/** The bytes of a collection: three views, what is kept where, and which codec won. */

import { Badge, Card } from "../../components/Layout.js";
import { type Part, Parts } from "../../components/Meter.js";
import { Empty } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { bytes, count, percent } from "../../format.js";
import type { Described, Kept } from "./types.js";
import { type View, verdict, viewsOf } from "./views.js";

export function BytesCard({ found }: { found: Described }) {
  const views = viewsOf(found);
  return (
    <Card title="What it takes" note="bytes of all documents">
      {views.length === 0 ? (
        <Empty icon="collections" title="Nothing is stored yet">
          <p>The three comparisons appear with the first document.</p>
        </Empty>
      ) : (
        <div class="views">
          {views.map((view) => (
            <ViewBars key={view.id} view={view} />
          ))}
        </div>
      )}
    </Card>
  );
}

function ViewBars({ view }: { view: View }) {
  const found = verdict(view);
  const most = Math.max(view.ours, view.theirs);
  return (
    <section class={found.more ? "view takes-more" : "view"}>
      <header>
        <h3>{view.title}</h3>
        <p class="view-verdict">Verso {found.text}</p>
      </header>
      <dl class="view-bars">
        <Bar name="Verso" what={view.oursLabel} size={view.ours} most={most} ours more={found.more} />
        <Bar name="Against" what={view.theirsLabel} size={view.theirs} most={most} />
      </dl>
      <p class="note">{view.about}</p>
    </section>
  );
}

function Bar(props: { name: string; what: string; size: number; most: number; ours?: boolean; more?: boolean }) {
  const { name, what, size, most, ours, more } = props;
  return (
    <div class="bar-row">
      <dt>
        <b>{name}</b> <span>{what}</span>
      </dt>
      <dd>
        <span class="bar-track">
          <span
            class={["bar-fill", ours ? "ours" : "", more ? "takes-more" : ""].join(" ")}
            style={{ width: `${Math.max(0.6, (size / most) * 100)}%` }}
          />
        </span>
        <span class="bar-size">{bytes(size)}</span>
      </dd>
    </div>
  );
}

export function CodecsCard({ found }: { found: Described }) {
  const rows = Object.entries(found.codecs ?? {})
    .filter(([, share]) => share.records > 0)
    .sort(([, a], [, b]) => b.records - a.records);
  if (rows.length === 0) return null;
  const records = rows.reduce((sum, [, share]) => sum + share.records, 0);
  const parts = rows.map(
    ([name, share], index): Part => ({
      label: name,
      value: share.records,
      text: percent(share.records / records),
      colour: colourOf(index),
    }),
  );
  return (
    <Card title="Which codec won" note="the smallest payload that decodes to the chunk">
      <div class="stack">
        <Parts label="Records by codec" parts={parts} />
        <Table
          caption="Records and bytes by codec"
          rows={rows}
          rowKey={([name]) => name}
          columns={[
            { title: "Codec", cell: ([name]) => <code>{name}</code> },
            { title: "Records", numeric: true, cell: ([, share]) => count(share.records) },
            { title: "Patches", numeric: true, cell: ([, share]) => bytes(share.bytes) },
            { title: "A record", numeric: true, cell: ([, share]) => bytes(share.bytes / share.records) },
          ]}
        />
      </div>
    </Card>
  );
}

const PLACES: readonly [keyof Kept, string, "memory" | "disk"][] = [
  ["bytes_entries", "patches", "memory"],
  ["bytes_lines", "lines", "memory"],
  ["bytes_texts", "texts kept too", "memory"],
  ["bytes_fitted", "fitted tables", "memory"],
  ["bytes_vectors", "vectors", "disk"],
  ["bytes_index", "index", "disk"],
  ["bytes_words", "words", "disk"],
  ["bytes_points", "ids, metadata", "disk"],
];

export function KeptCard({ found }: { found: Described }) {
  const kept = found.kept;
  if (!kept || kept.bytes_memory + (kept.bytes_disk ?? 0) === 0) return null;
  const all = kept.bytes_memory + (kept.bytes_disk ?? 0);
  return (
    <Card title="Where it lies" note={`${bytes(all)} in all`}>
      <div class="stack">
        <Placed kept={kept} where="memory" title="Memory of the ledger" total={kept.bytes_memory} />
        {kept.bytes_disk ? (
          <Placed kept={kept} where="disk" title="Disk of the vector store" total={kept.bytes_disk} />
        ) : (
          <p class="note">The vector store does not say what it has on disk.</p>
        )}
        <p class="note">
          Kept once for all collections: {bytes(kept.bytes_tables)} of codec tables.
          {(found.generations ?? []).length > 0 && (
            <>
              {" "}
              <Badge tone="accent">fitted {count(found.fits ?? 0)} times</Badge>
            </>
          )}
        </p>
      </div>
    </Card>
  );
}

function Placed(props: { kept: Kept; where: "memory" | "disk"; title: string; total: number }) {
  const own = PLACES.filter(([, , where]) => where === props.where);
  const parts = own.map(
    ([name, label], index): Part => ({
      label,
      value: props.kept[name] ?? 0,
      text: bytes(props.kept[name] ?? 0),
      colour: colourOf(index),
    }),
  );
  return (
    <div>
      <p class="placed">
        <span>{props.title}</span> <b>{bytes(props.total)}</b>
      </p>
      <Parts label={props.title} parts={parts} />
    </div>
  );
}

function colourOf(index: number): Part["colour"] {
  return (Math.min(index, 5) + 1) as Part["colour"];
}
