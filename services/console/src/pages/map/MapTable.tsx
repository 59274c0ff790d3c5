/** The points of the map as a table: the same points, colours and links, for those who do not look. */

import { useMemo, useState } from "preact/hooks";
import { Select } from "../../components/Field.js";
import { VirtualList } from "../../components/VirtualList.js";
import { count } from "../../format.js";
import type { Projected } from "./types.js";

interface Props {
  found: Projected;
  hidden: ReadonlySet<number>;
  selected: number | null;
  onSelect: (index: number) => void;
}

type Order = "colour" | "x" | "y" | "id";
const ROW_PX = 40;

export function MapTable({ found, hidden, selected, onSelect }: Props) {
  const [order, setOrder] = useState<Order>("colour");
  const rows = useMemo(() => sorted(found, hidden, order), [found, hidden, order]);
  return (
    <div class="map-table">
      <div class="map-table-head">
        <span class="note">{count(rows.length)} points</span>
        <Select
          label="Order"
          bare
          value={order}
          choices={[
            { value: "colour", label: "by colour" },
            { value: "x", label: "from left to right" },
            { value: "y", label: "from top to bottom" },
            { value: "id", label: "by id" },
          ]}
          onChange={setOrder}
        />
      </div>
      <VirtualList
        count={rows.length}
        rowHeight={ROW_PX}
        label="Points of the map"
        row={(at) => {
          const index = rows[at] ?? 0;
          const colour = found.colour[index] ?? -1;
          return (
            <button
              key={index}
              type="button"
              class={index === selected ? "map-row selected" : "map-row"}
              aria-pressed={index === selected}
              onClick={() => onSelect(index)}
            >
              <span class={`map-swatch ${colour < 0 ? "none" : `map-${colour + 1}`}`} />
              <span class="map-row-id">{found.templates?.[index] ?? found.ids[index]}</span>
              <span class="map-row-label note">{found.colours[colour]?.label ?? ""}</span>
              <span class="map-row-place">{(found.x[index] ?? 0).toFixed(2)}</span>
              <span class="map-row-place">{(found.y[index] ?? 0).toFixed(2)}</span>
            </button>
          );
        }}
      />
    </div>
  );
}

function sorted(found: Projected, hidden: ReadonlySet<number>, order: Order): number[] {
  const rows = found.ids.map((_, index) => index).filter((index) => !hidden.has(found.colour[index] ?? -1));
  const by: Record<Order, (index: number) => number> = {
    colour: (index) => ((found.colour[index] ?? -1) + 100) % 100,
    x: (index) => found.x[index] ?? 0,
    y: (index) => -(found.y[index] ?? 0),
    id: () => 0,
  };
  if (order === "id") return rows.sort((a, b) => (found.ids[a] ?? "").localeCompare(found.ids[b] ?? ""));
  return rows.sort((a, b) => by[order](a) - by[order](b) || a - b);
}
