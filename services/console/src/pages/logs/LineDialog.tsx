/** One line in full: its exact text, labels and attributes, and the lines around it. */

import { useEffect, useState } from "preact/hooks";
import type { Problem } from "../../api.js";
import { problemFrom, send } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples, python } from "../../components/CodeSamples.js";
import { CopyButton } from "../../components/CopyButton.js";
import { Dialog } from "../../components/Dialog.js";
import { Highlight } from "../../components/Highlight.js";
import { Badge, Facts } from "../../components/Layout.js";
import { ErrorState, Loading, Notice } from "../../components/States.js";
import { lineTime } from "../../components/ticks.js";
import { useRequest } from "../../request.js";
import { Link, addressOf, setQuery } from "../../router.js";
import type { Found } from "../../types.js";
import { fromBase64, hexDump } from "../../text.js";
import { found, levelOf, preview } from "./LineRow.js";
import { type LogLine, textOf } from "./lines.js";
import { type LogsState, addressOfLine, change, testText } from "./state.js";
import { levelTone } from "./types.js";

const AROUND = [5, 20, 100];

export function LineDialog({ state }: { state: LogsState }) {
  const close = () => setQuery({ line: null }, { replace: true });
  return (
    <Dialog title={state.line === null ? "Line" : `Line ${state.line}`} open={state.line !== null} onClose={close} wide>
      {state.line !== null && <LineView key={state.line} state={state} id={state.line} />}
    </Dialog>
  );
}

function LineView({ state, id }: { state: LogsState; id: string }) {
  const [step, setStep] = useState(0);
  const around = AROUND[step] ?? 5;
  const body = { collection: state.collection, filter: { field: "id", eq: id }, before: around, after: around, limit: 1 };
  const { line, problem } = useLine(body);
  if (problem) return <ErrorState problem={problem} />;
  if (line === undefined) return <Loading lines={6} label="Reading the line" />;
  if (line === null) {
    return <Notice tone="warning">This line is not stored yet, or was deleted. A line of the live tail is stored some seconds after its acceptance.</Notice>;
  }
  const text = textOf(line);
  const at = lineTime(line.time);
  const level = levelOf(line);
  return (
    <>
      <div class="line-head">
        <b>
          {at.day} {at.clock}
        </b>
        {level && <span class={`level-word ${levelTone(level) ?? ""}`}>{level}</span>}
        {line.time_from && <Badge title="The sender gave no time">time: {line.time_from}</Badge>}
        <span class="line-actions">
          <CopyButton text={text} label="Copy the line" />
          <CodeSamples
            samples={[
              {
                title: "Read the line and those around it",
                request: { method: "POST", path: "/v1/logs/query", body },
                python: `from verso_client import LinesRequest\n\nfor data in client.lines(LinesRequest.model_validate(${python(body)})):\n    print(data.decode(), end="")`,
              },
            ]}
          />
        </span>
      </div>
      <pre class="line-text">
        {line.text_base64 === undefined ? <Highlight text={text} spans={found(text, state.meaning ? "" : state.text)} /> : hexDump(fromBase64(line.text_base64))}
      </pre>
      <div class="line-facts">
        <Facts
          facts={[
            ["time", <code>{line.time ?? "–"}</code>],
            ["statement", <LineStatement state={state} id={id} />],
            ...Object.entries(line.labels ?? {}).map(([name, value]) => [name, <LabelFact state={state} name={name} value={value} />] as const),
            ...Object.entries(line.attributes ?? {}).map(([name, value]) => [name, <code>{typeof value === "string" ? value : JSON.stringify(value)}</code>] as const),
          ]}
        />
      </div>
      <section class="line-around" aria-label="Lines around it">
        <header>
          <h3>Lines around it</h3>
          <span class="note">of the same source, whatever their level</span>
          {step + 1 < AROUND.length && (
            <Button small kind="quiet" icon="plus" onClick={() => setStep(step + 1)}>
              {AROUND[step + 1]} before and after
            </Button>
          )}
        </header>
        <ol>
          {(line.before ?? []).map((one) => (
            <Around key={one.id} line={one} />
          ))}
          <Around line={line} here />
          {(line.after ?? []).map((one) => (
            <Around key={one.id} line={one} />
          ))}
        </ol>
      </section>
    </>
  );
}

/** The statement that wrote the line, which leads to all of its lines. */
function LineStatement({ state, id }: { state: LogsState; id: string }) {
  const body = { collection: state.collection, id, limit: 1, with_text: false };
  const { data, problem } = useRequest<Found>({ method: "POST", path: "/v1/search", body });
  const hit = data?.hits[0];
  if (problem || (data !== undefined && hit?.statement_id == null)) return <>–</>;
  if (hit === undefined) return <>…</>;
  const to = addressOf("logs", { collection: state.collection, statement: hit.statement_id });
  return (
    <Link to={to} title="All lines of this statement">
      <code>{hit.statement}</code>
    </Link>
  );
}

function Around({ line, here }: { line: LogLine; here?: boolean }) {
  const level = levelOf(line);
  const inner = (
    <>
      <span class="log-time">{lineTime(line.time).clock}</span>
      <span class="around-text">{here ? textOf(line) : preview(textOf(line), line)}</span>
    </>
  );
  return (
    <li class={`${here ? "here" : ""} ${levelTone(level) ?? ""}`} aria-current={here ? "true" : undefined}>
      {here ? <div class="around-row">{inner}</div> : <Link to={addressOfLine(line.id)} class="around-row">{inner}</Link>}
    </li>
  );
}

function LabelFact({ state, name, value }: { state: LogsState; name: string; value: string }) {
  const chosen = state.where.some((test) => test.name === name && test.value === value && !test.not);
  return (
    <span class="label-fact">
      <code>{value}</code>
      {!chosen && (
        <Button
          kind="quiet"
          small
          icon="filter"
          label={`Only lines with ${name}=${value}`}
          onClick={() => change({ where: [...state.where.map(testText), `${name}=${value}`] })}
        />
      )}
    </span>
  );
}

/** Read one line; null where there is none. */
function useLine(body: Record<string, unknown>): { line: LogLine | null | undefined; problem: Problem | undefined } {
  const [line, setLine] = useState<LogLine | null | undefined>(undefined);
  const [problem, setProblem] = useState<Problem | undefined>(undefined);
  const key = JSON.stringify(body);
  useEffect(() => {
    const control = new AbortController();
    send({ method: "POST", path: "/v1/logs/query", body: JSON.parse(key) as unknown }, { signal: control.signal })
      .then(async (response) => {
        const rows = (await response.text()).split("\n").filter((text) => text !== "");
        setLine(rows.map((text) => JSON.parse(text) as LogLine).find((row) => row.id !== undefined) ?? null);
      })
      .catch((error: unknown) => {
        if (!control.signal.aborted) setProblem(problemFrom(error));
      });
    return () => control.abort();
  }, [key]);
  return { line, problem };
}
