/** Parts of jobs that crashed or failed too often: they wait until somebody replays them. */

import { useState } from "preact/hooks";
import { call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Dialog } from "../../components/Dialog.js";
import { Select } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { type Column, Table } from "../../components/Table.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { ago, bytes, count, plural, time } from "../../format.js";
import type { Answer } from "../../request.js";
import { type JobsState, addressOfJob, setState } from "./state.js";
import { type DeadLetter, type DeadLetterPage, kindText } from "./types.js";

export function DeadLettersView({ state, answer }: { state: JobsState; answer: Answer<DeadLetterPage> }) {
  const letters = answer.data?.dead_letters ?? [];
  const kinds = [...new Set(letters.map((letter) => letter.kind))];
  const codes = [...new Set(letters.map((letter) => letter.error.code))];
  const shown = letters.filter((letter) => (state.kind === "" || letter.kind === state.kind) && (state.code === "" || letter.error.code === state.code));
  return (
    <>
      <div class="jobs-filters" role="group" aria-label="Which dead letters are listed">
        <Select
          label="Kind"
          bare
          value={state.kind}
          choices={[{ value: "", label: "Every kind" }, ...withOwn(kinds, state.kind).map((kind) => ({ value: kind, label: kindText(kind) }))]}
          onChange={(kind) => setState({ kind })}
        />
        <Select
          label="Error"
          bare
          value={state.code}
          choices={[{ value: "", label: "Every error" }, ...withOwn(codes, state.code).map((code) => ({ value: code, label: code }))]}
          onChange={(code) => setState({ code })}
        />
        {shown.length > 0 && <ReplayAll state={state} jobs={new Set(shown.map((letter) => letter.job_id)).size} onDone={answer.reload} />}
      </div>
      <Card flush>
        {answer.problem && <ErrorState problem={answer.problem} retry={answer.reload} />}
        {!answer.data && !answer.problem && (
          <div class="jobs-wait">
            <Loading lines={5} label="Reading dead letters" />
          </div>
        )}
        {answer.data && shown.length === 0 && (
          <Empty icon="check" title="No dead letters">
            <p>Nothing of yours failed so often that it waits for somebody to look at it.</p>
          </Empty>
        )}
        {shown.length > 0 && (
          <Table
            caption={plural(shown.length, "dead letter")}
            columns={COLUMNS}
            rows={shown}
            rowKey={(letter) => `${letter.job_id}.${letter.slice}`}
            to={(letter) => addressOfJob(letter.job_id)}
            selected={(letter) => letter.job_id === state.job}
          />
        )}
      </Card>
    </>
  );
}

function withOwn(names: readonly string[], own: string): string[] {
  return own === "" || names.includes(own) ? [...names] : [...names, own];
}

const COLUMNS: readonly Column<DeadLetter>[] = [
  {
    title: "Job",
    cell: (letter) => (
      <span class="job-cell">
        {kindText(letter.kind)}
        <span class="job-id">{letter.job_id.slice(0, 8)}</span>
      </span>
    ),
  },
  {
    title: "Why",
    cell: (letter) => (
      <span class="letter-why">
        {letter.error.detail}
        <a href={`/docs/errors/${letter.error.code}`} target="_blank" rel="noreferrer">
          {letter.error.code}
        </a>
      </span>
    ),
  },
  { title: "Part", numeric: true, minor: true, cell: (letter) => count(letter.slice + 1) },
  { title: "Held", numeric: true, cell: (letter) => <span title={plural(letter.items, "item")}>{`${plural(letter.items, "item")}, ${bytes(letter.bytes)}`}</span> },
  { title: "Tried", numeric: true, minor: true, cell: (letter) => [letter.errors > 0 ? plural(letter.errors, "error") : "", letter.crashes > 0 ? plural(letter.crashes, "crash", "crashes") : ""].filter(Boolean).join(", ") || "once" },
  { title: "Since", numeric: true, minor: true, cell: (letter) => <span title={time(letter.died)}>{ago(letter.died)}</span> },
];

function ReplayAll({ state, jobs, onDone }: { state: JobsState; jobs: number; onDone: () => void }) {
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const replay = async () => {
    setBusy(true);
    try {
      const query = { kind: state.kind || null, code: state.code || null };
      const answer = await call<{ jobs: string[]; more: boolean }>({ method: "POST", path: "/v1/dead-letters/replay", query });
      toast(`${plural(answer.jobs.length, "job")} ${answer.jobs.length === 1 ? "has" : "have"} new attempts${answer.more ? "; there are more" : ""}`);
      onDone();
    } catch (error) {
      toastProblem(error);
    }
    setBusy(false);
    setAsking(false);
  };
  return (
    <>
      <Button small icon="refresh" onClick={() => setAsking(true)}>
        Replay {jobs === 1 ? "it" : "them"}
      </Button>
      <Dialog
        title="Replay dead letters?"
        open={asking}
        onClose={() => setAsking(false)}
        actions={
          <>
            <Button onClick={() => setAsking(false)}>Not now</Button>
            <Button kind="primary" busy={busy} onClick={() => void replay()}>
              Replay {plural(jobs, "job")}
            </Button>
          </>
        }
      >
        <p>Each gets a new budget of attempts, with the texts that the platform has kept. What fails again comes back here.</p>
      </Dialog>
    </>
  );
}
