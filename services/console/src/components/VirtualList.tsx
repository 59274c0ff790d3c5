/** A list of which only the rows in sight are in the page. Rows have one height. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
  count: number;
  /** Height of a row, pixels. */
  rowHeight: number;
  /** Called for the rows in sight and some around them. */
  row: (index: number) => ComponentChildren;
  label: string;
  /** Stay at the end while rows are added, if the end is in sight. */
  follow?: boolean;
  /** Called while the end is in sight: as it comes into sight, and as rows or this function change. */
  onEndReached?: () => void;
}

const AROUND = 20;
/** Browsers cannot scroll further than some 33 million pixels; positions are scaled beyond. */
const MAX_HEIGHT = 10_000_000;

export function VirtualList({ count, rowHeight, row, label, follow = false, onEndReached }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const atEnd = useRef(true);
  const height = Math.min(count * rowHeight, MAX_HEIGHT);
  const scale = height > view.height ? (count * rowHeight - view.height) / (height - view.height) : 1;

  const measure = () => {
    const element = frame.current;
    if (element === null) return;
    atEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - rowHeight;
    setView({ top: element.scrollTop, height: element.clientHeight });
    if (atEnd.current) onEndReached?.();
  };

  useEffect(() => {
    const element = frame.current;
    if (element === null) return undefined;
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  // at its end a list does not scroll any more: what is asked for there must not wait for an event
  useEffect(measure, [count, onEndReached]);

  useLayoutEffect(() => {
    const element = frame.current;
    if (follow && atEnd.current && element !== null) element.scrollTop = element.scrollHeight;
  }, [count, follow]);

  const position = view.top * scale;
  const first = Math.max(0, Math.floor(position / rowHeight) - AROUND);
  const last = Math.min(count, Math.ceil((position + view.height) / rowHeight) + AROUND);
  const offset = first * rowHeight - (position - view.top);
  return (
    <div class="virtual" ref={frame} role="region" aria-label={label} tabIndex={0} onScroll={measure}>
      <div class="virtual-space" style={{ height: `${height}px` }}>
        <div class="virtual-rows" style={{ transform: `translateY(${offset}px)` }}>
          {Array.from({ length: Math.max(0, last - first) }, (_, index) => row(first + index))}
        </div>
      </div>
    </div>
  );
}
