/** What each colour stands for; a colour can be left out. */

import { Card } from "../../components/Layout.js";
import { count } from "../../format.js";
import type { Projected } from "./types.js";

interface Props {
  found: Projected;
  colouring: "group" | "label" | "none";
  hidden: ReadonlySet<number>;
  onHidden: (hidden: ReadonlySet<number>) => void;
}

export function MapLegend({ found, colouring, hidden, onHidden }: Props) {
  if (colouring === "none") return null;
  const without = found.colour.filter((one) => one < 0).length;
  const rows = [
    ...found.colours.map((one, index) => ({ index, ...one })),
    ...(without > 0 ? [{ index: -1, label: found.colours.length === 12 ? "other values, or none" : "without a value", points: without }] : []),
  ];
  const toggle = (index: number) => {
    const next = new Set(hidden);
    if (!next.delete(index)) next.add(index);
    onHidden(next);
  };
  return (
    <Card title={colouring === "group" ? "Groups" : "Labels"} note={colouring === "group" ? "the text nearest to each middle" : undefined}>
      <ul class="map-legend">
        {rows.map((row) => (
          <li key={row.index}>
            <label>
              <input type="checkbox" checked={!hidden.has(row.index)} onChange={() => toggle(row.index)} />
              <span class={`map-swatch ${row.index < 0 ? "none" : `map-${row.index + 1}`}`} />
              <span class="map-label" title={row.label}>
                {row.label}
              </span>
              <span class="note">{count(row.points)}</span>
            </label>
          </li>
        ))}
      </ul>
    </Card>
  );
}
