/** What lines have in common: statements with how often and when; those that are new. */

import { Select } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { Sparkline } from "../../components/Sparkline.js";
import { Empty, ErrorState, Loading, Notice } from "../../components/States.js";
import { type Column, Table } from "../../components/Table.js";
import { ago, count, duration, plural, time } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf, place } from "../../router.js";
import { statementsRequest } from "./requests.js";
import { type Bounds, type LogsState, change } from "./state.js";
import type { Statement, Statements } from "./types.js";

interface Props {
  state: LogsState;
  bounds: Bounds;
  nowS: number;
  /** Of the volume: its intervals have the same edges. */
  intervalS: number | undefined;
}

export function StatementsView({ state, bounds, nowS, intervalS }: Props) {
  const found = useRequest<Statements>(intervalS === undefined ? null : statementsRequest({ ...state, statement: null }, bounds, nowS, intervalS));
  const { data, problem } = found;
  const fresh = state.fresh !== null;
  return (
    <Card
      flush
      title={fresh ? "New statements" : "Statements"}
      note={data && `${plural(data.distinct, "statement")} of ${plural(data.lines, "line")}`}
      actions={<FreshChoice state={state} bounds={bounds} />}
    >
      {state.text !== "" && (
        <Notice>The text is not looked for here: statements are those of all lines with these labels and times.</Notice>
      )}
      {problem && <ErrorState problem={problem} retry={found.reload} />}
      {!data && !problem && (
        <div class="logs-wait">
          <Loading lines={8} label="Finding statements" />
        </div>
      )}
      {data && data.statements.length === 0 && (
        <Empty icon={fresh ? "check" : "logs"} title={fresh ? "Nothing new" : "No statements"}>
          <p>{fresh ? "Every statement of these lines was seen before that time." : "No stored line passes what is chosen."}</p>
        </Empty>
      )}
      {data && data.statements.length > 0 && (
        <div class={found.loading ? "stale" : undefined}>
          <Table caption={fresh ? "New statements" : "Statements"} columns={columnsOf(data)} rows={data.statements} rowKey={(row) => row.id} to={addressOfStatement} />
        </div>
      )}
      {data && data.distinct > data.statements.length && (
        <p class="note logs-more">The {count(data.statements.length)} most frequent ones. Choose labels or times to see others.</p>
      )}
    </Card>
  );
}

function FreshChoice({ state, bounds }: { state: LogsState; bounds: Bounds }) {
  const values: Record<string, string> = { "1h": "New in the last hour", "24h": "New in the last 24 hours", "7d": "New in the last 7 days" };
  const of = { 3600: "1h", 86_400: "24h", 604_800: "7d" } as Record<number, string>;
  const value = state.fresh === null ? "" : state.fresh === "range" ? "range" : (of[state.fresh] ?? "");
  return (
    <Select
      label="Which statements"
      bare
      value={value}
      choices={[
        { value: "", label: "All statements" },
        { value: "range", label: bounds.from === null ? "New since … (brush a range first)" : `New since ${time(bounds.from)}`, disabled: bounds.from === null },
        ...Object.entries(values).map(([one, label]) => ({ value: one, label })),
      ]}
      onChange={(chosen) => change({ new: chosen })}
    />
  );
}

function columnsOf(data: Statements): Column<Statement>[] {
  const every = data.interval_s ? `lines in ${duration(data.interval_s)}` : "lines";
  return [
    {
      title: "Statement",
      cell: (row) => (
        <>
          <Template text={row.statement} />
          <span class="note only-narrow">last {ago(row.last_seen)}</span>
        </>
      ),
    },
    { title: "Lines", numeric: true, cell: (row) => count(row.count) },
    {
      title: "Over time",
      minor: true,
      width: "136px",
      cell: (row) => <Sparkline label={`${every}: ${count(row.count)} in all, most ${count(Math.max(0, ...(row.counts ?? [])))}`} values={row.counts ?? []} />,
    },
    { title: "First seen", minor: true, width: "150px", cell: (row) => <Seen at={row.first_seen} /> },
    { title: "Last seen", minor: true, width: "150px", cell: (row) => <Seen at={row.last_seen} /> },
  ];
}

function Seen({ at }: { at: number }) {
  return (
    <span class="seen" title={time(at)}>
      {time(at)}
      <span class="note">{ago(at)}</span>
    </span>
  );
}

/** The words of a statement; where lines differ stands a gap. */
export function Template({ text }: { text: string }) {
  return (
    <code class="template">
      {text.split(/(<\*>)/u).map((part, index) => (part === "<*>" ? <span key={index} class="gap" role="img" aria-label="anything" /> : part))}
    </code>
  );
}

/** Return the address of the lines of a statement, with all else that is chosen. */
function addressOfStatement(row: Statement): string {
  const query: Record<string, string[]> = {};
  for (const [name, value] of place.value.query) (query[name] ??= []).push(value);
  delete query["view"];
  delete query["line"];
  return addressOf("logs", { ...query, statement: row.id });
}
