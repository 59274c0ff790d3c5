/** The items of a job that failed, with their places in the request. */

import { useEffect, useState } from "preact/hooks";
import { type Problem, call, problemFrom } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Card } from "../../components/Layout.js";
import { ErrorState, Loading } from "../../components/States.js";
import { count, plural } from "../../format.js";
import type { Failure, FailurePage } from "./types.js";

const PAGE = 50;

export function Failures({ path, failed }: { path: string; failed: number }) {
  const [rows, setRows] = useState<readonly Failure[]>([]);
  const [cursor, setCursor] = useState<string | null | undefined>(undefined);
  const [problem, setProblem] = useState<Problem | undefined>(undefined);
  const [busy, setBusy] = useState(false);

  const more = async (from: string | null, signal?: AbortSignal) => {
    setBusy(true);
    let next = from;
    let found: Failure[] = [];
    try {
      // A page may be empty where many parts of the job have no failures.
      do {
        const request = { method: "GET" as const, path: `${path}/failures`, query: { limit: PAGE, cursor: next } };
        const page: FailurePage = await call<FailurePage>(request, signal ? { signal } : {});
        found = [...found, ...page.failures];
        next = page.next_cursor;
      } while (next !== null && found.length === 0);
      setRows((before) => [...before, ...found]);
      setCursor(next);
    } catch (error) {
      if (signal?.aborted) return;
      setProblem(problemFrom(error));
    }
    setBusy(false);
  };
  useEffect(() => {
    const control = new AbortController();
    void more(null, control.signal);
    return () => control.abort();
  }, [path]);

  return (
    <Card flush title="What failed" note={plural(failed, "item")}>
      {problem && <ErrorState problem={problem} />}
      {rows.length === 0 && cursor === undefined && !problem && (
        <div class="jobs-wait">
          <Loading lines={3} label="Reading what failed" />
        </div>
      )}
      {rows.length === 0 && cursor === null && <p class="note jobs-more">The reasons are not kept any more.</p>}
      <ol class="failures">
        {rows.map((row, index) => (
          <li key={index}>
            <span class="failure-place">
              {placeText(row)}
              {row.id && <code>{row.id}</code>}
            </span>
            <span class="failure-detail">{row.error.detail}</span>
            <a href={`/docs/errors/${row.error.code}`} target="_blank" rel="noreferrer">
              {row.error.code}
            </a>
          </li>
        ))}
      </ol>
      {typeof cursor === "string" && (
        <div class="jobs-more">
          <Button small busy={busy} onClick={() => void more(cursor)}>
            More
          </Button>
        </div>
      )}
    </Card>
  );
}

/** Places count from 1, as people do. */
function placeText(row: Failure): string {
  const many = row.items ?? 1;
  if (row.item === null) return many > 1 ? plural(many, "item") : "item";
  return many > 1 ? `items ${count(row.item + 1)} to ${count(row.item + many)}` : `item ${count(row.item + 1)}`;
}
