/** Lines one below the other, of which only those in sight are in the page; arrows move between them. */

import { useRef } from "preact/hooks";
import { VirtualList } from "../../components/VirtualList.js";
import { lineTime } from "../../components/ticks.js";
import { useNarrow } from "../../components/useNarrow.js";
import { LineRow, ROW } from "./LineRow.js";
import type { LogLine } from "./lines.js";

interface Props {
  label: string;
  lines: readonly LogLine[];
  contains?: string;
  scores?: boolean;
  follow?: boolean;
  onEndReached?: () => void;
}

export function LineList({ label, lines, contains = "", scores = false, follow = false, onEndReached }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const rowHeight = useNarrow() ? ROW.narrow : ROW.wide;
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
    const step = steps[event.key];
    const row = document.activeElement?.closest("[data-result]");
    if (step === undefined || row === null || row === undefined) return;
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    if (next instanceof HTMLElement) {
      event.preventDefault();
      next.focus({ preventScroll: true });
      next.scrollIntoView({ block: "nearest" });
    }
  };
  return (
    <div class="log-list" ref={frame} style={{ maxHeight: `${lines.length * rowHeight}px` }} onKeyDown={move}>
      <VirtualList
        label={label}
        count={lines.length}
        rowHeight={rowHeight}
        follow={follow}
        {...(onEndReached ? { onEndReached } : {})}
        row={(index) => {
          const line = lines[index];
          if (line === undefined) return null;
          const before = lines[index - 1];
          const same = before !== undefined && dayOf(before) === dayOf(line);
          return <LineRow key={line.id} line={line} contains={contains} day={!same} score={scores} />;
        }}
      />
    </div>
  );
}

function dayOf(line: LogLine): string {
  return lineTime(line.time ?? line.arrived).day;
}
