/** One job: its state as it changes, what failed of it, and what can be done about it. */

import { useState } from "preact/hooks";
import { ApiError, call, segment } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples, python } from "../../components/CodeSamples.js";
import { CopyButton } from "../../components/CopyButton.js";
import { Dialog } from "../../components/Dialog.js";
import { Card, Facts } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { ErrorState, Loading, Notice } from "../../components/States.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { count, duration, plural, time } from "../../format.js";
import { useRequest } from "../../request.js";
import { Failures } from "./Failures.js";
import { Items, StatusBadge } from "./JobsView.js";
import { type Progress, useProgress } from "./live.js";
import { setState } from "./state.js";
import { type Job, hasEnded, kindText } from "./types.js";

interface Props {
  id: string;
  /** The job as the list has it, which its events keep up to date. */
  known: Job | undefined;
  onChanged: () => void;
}

export function JobView({ id, known, onChanged }: Props) {
  const path = `/v1/jobs/${segment(id)}`;
  const answer = useRequest<Job>({ method: "GET", path, query: { limit: 0 } }, { waitS: 0, ...(known === undefined ? { everyS: 3 } : {}) });
  const job = answer.data === undefined ? undefined : (known ?? answer.data);
  const progress = useProgress(job !== undefined && !hasEnded(job.status) ? id : null);
  return (
    <section class="job-view" aria-label="Job">
      <Card
        title={job === undefined ? "Job" : sentence(kindText(job.kind))}
        note={job && <StatusBadge status={job.status} />}
        actions={
          <>
            <CodeSamples
              samples={[
                { title: "Describe the job", request: { method: "GET", path }, python: `print(client.job(${python(id)}))` },
                { title: "Follow it", request: { method: "GET", path: `${path}/events` }, python: `for event in client.events(${python(id)}):\n    print(event)` },
                { title: "What failed", request: { method: "GET", path: `${path}/failures` }, python: `for item in client.results(${python(id)}):\n    if item.get("error"):\n        print(item)` },
              ]}
            />
            <Button kind="quiet" small icon="close" label="Close" onClick={() => setState({ job: null })} />
          </>
        }
      >
        {answer.problem && answer.problem.code !== "job_unknown" && <ErrorState problem={answer.problem} retry={answer.reload} />}
        {answer.problem?.code === "job_unknown" && (
          <Notice>This job is not known any more. Jobs and their results are kept for a day after their end, searches for a minute.</Notice>
        )}
        {!job && !answer.problem && <Loading lines={6} label="Reading the job" />}
        {job && !answer.problem && (
          <div class="job-body">
            <Items job={job} />
            {progress?.progress && <Reported progress={progress} />}
            {job.error && <Fault job={job} />}
            <Actions job={job} path={path} onChanged={() => [answer.reload(), onChanged()]} />
            <Facts facts={factsOf(job)} />
          </div>
        )}
      </Card>
      {job && job.failed > 0 && <Failures key={`${job.status} ${job.failed}`} path={path} failed={job.failed} />}
    </section>
  );
}

/** What the worker says of how far it is, such as an epoch of a training. */
function Reported({ progress }: { progress: Progress }) {
  const { stage, share, ...figures } = progress.progress ?? {};
  const shown = Object.entries(figures).filter(([, value]) => typeof value === "number" || typeof value === "string");
  return (
    <div class="job-reported" aria-live="polite">
      <span>
        {typeof stage === "string" ? stage : "under way"}
        {typeof share === "number" && <b> {Math.round(share * 100)} %</b>}
      </span>
      {typeof share === "number" && <Meter label="Share of the work done" value={share} />}
      {shown.length > 0 && <span class="note">{shown.map(([name, value]) => `${name} ${typeof value === "number" ? Number(value.toPrecision(4)) : String(value)}`).join(" · ")}</span>}
    </div>
  );
}

function Fault({ job }: { job: Job }) {
  const { error } = job;
  if (error === null) return null;
  return (
    <Notice tone={job.status === "cancelled" || job.status === "expired" ? "warning" : "bad"}>
      {error.detail}{" "}
      <a href={`/docs/errors/${error.code}`} target="_blank" rel="noreferrer">
        {error.code}
      </a>
    </Notice>
  );
}

function Actions({ job, path, onChanged }: { job: Job; path: string; onChanged: () => void }) {
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const act = async (method: "DELETE" | "POST", to: string, done: string) => {
    setBusy(true);
    try {
      await call<Job>({ method, path: to }, { detached: true });
      toast(done);
      onChanged();
    } catch (error) {
      if (error instanceof ApiError || error instanceof Error) toastProblem(error);
    }
    setBusy(false);
    setAsking(false);
  };
  if (hasEnded(job.status) && job.status !== "dead") return null;
  return (
    <div class="actions">
      {job.status === "dead" ? (
        <Button kind="primary" icon="refresh" busy={busy} onClick={() => void act("POST", `${path}/replay`, "The job has new attempts")}>
          Replay
        </Button>
      ) : (
        <Button icon="stop" busy={busy} onClick={() => setAsking(true)}>
          Cancel
        </Button>
      )}
      <Dialog
        title="Cancel this job?"
        open={asking}
        onClose={() => setAsking(false)}
        actions={
          <>
            <Button onClick={() => setAsking(false)}>Let it run</Button>
            <Button kind="danger" busy={busy} onClick={() => void act("DELETE", path, "The job is cancelled")}>
              Cancel the job
            </Button>
          </>
        }
      >
        <p>Work that has not started never will. What is done already stays: {count(job.ok)} of {plural(job.items, "item")}.</p>
      </Dialog>
    </div>
  );
}

function factsOf(job: Job): [string, preact.ComponentChildren][] {
  const seconds = (from: string | null, to: string | null) =>
    from === null || to === null ? "–" : duration(Math.max(0, new Date(to).getTime() - new Date(from).getTime()) / 1000);
  const facts: [string, preact.ComponentChildren][] = [
    [
      "id",
      <span class="job-name">
        <code>{job.id}</code>
        <CopyButton text={job.id} label="Copy the id" />
      </span>,
    ],
    ["accepted", time(job.created)],
    ["waited", seconds(job.created, job.started)],
    ["worked", seconds(job.started, job.finished)],
    ["parts", `${count(job.slices_done)} of ${count(job.slices)} done`],
    ["attempts", count(job.attempts)],
    ["urgency", `${job.urgency} (0 first, 7 last)`],
  ];
  if (job.deadline !== null) facts.push(["deadline", time(job.deadline)]);
  return facts;
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
