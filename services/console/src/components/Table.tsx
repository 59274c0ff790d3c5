/** The one table style: figures right, rows that open something can be reached by keyboard. */

import type { ComponentChildren } from "preact";
import { Link } from "../router.js";

export interface Column<T> {
  title: string;
  /** Figures stand right, in tabular numerals. */
  numeric?: boolean;
  /** Left out on narrow screens. */
  minor?: boolean;
  width?: string;
  cell: (row: T) => ComponentChildren;
}

interface Props<T> {
  /** What the table shows, for screen readers. */
  caption: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  rowKey: (row: T) => string;
  /** Where the first cell of a row leads. */
  to?: (row: T) => string;
  selected?: (row: T) => boolean;
  onSelect?: (row: T) => void;
}

export function Table<T>({ caption, columns, rows, rowKey, to, selected, onSelect }: Props<T>) {
  return (
    <div class="table-frame" role="region" aria-label={caption} tabIndex={0}>
      <table class="table">
        <caption class="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.title} scope="col" class={classOf(column)} style={column.width ? { width: column.width } : undefined}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)} aria-selected={selected?.(row)} class={onSelect ? "selectable" : undefined} onClick={onSelect && (() => onSelect(row))}>
              {columns.map((column, index) => (
                <td key={column.title} class={classOf(column)}>
                  {index === 0 && to ? (
                    <Link to={to(row)} class="row-link">
                      {column.cell(row)}
                    </Link>
                  ) : (
                    column.cell(row)
                  )}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function classOf(column: Column<never>): string | undefined {
  const names = [column.numeric ? "numeric" : "", column.minor ? "minor" : ""].filter(Boolean);
  return names.length ? names.join(" ") : undefined;
}
