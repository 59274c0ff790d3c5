/** The list of jobs, the newest first, as it changes. */

import { useEffect, useState } from "preact/hooks";
import { Button } from "../../components/Button.js";
import { Segmented, Select, Switch } from "../../components/Field.js";
import { Badge, Card, type Tone } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { type Column, Table } from "../../components/Table.js";
import { ago, count, duration, plural, time } from "../../format.js";
import { addressOf } from "../../router.js";
import type { JobsAnswer } from "./live.js";
import { type Group, type JobsState, addressOfJob, setState } from "./state.js";
import { CHANGES, type Job, READS, type Status, hasEnded, kindText } from "./types.js";

export function JobsView({ state, answer }: { state: JobsState; answer: JobsAnswer }) {
  const { jobs, problem, loading } = answer;
  useTicks(5000);
  return (
    <>
      <Filters state={state} />
      <Card flush>
        {problem && <ErrorState problem={problem} retry={answer.reload} />}
        {!problem && jobs === undefined && (
          <div class="jobs-wait">
            <Loading lines={8} label="Reading jobs" />
          </div>
        )}
        {!problem && jobs?.length === 0 && !answer.hasMore && <NoJobs state={state} />}
        {jobs !== undefined && jobs.length > 0 && (
          <Table
            caption={plural(jobs.length, "job")}
            columns={COLUMNS}
            rows={jobs}
            rowKey={(job) => job.id}
            to={(job) => addressOfJob(job.id)}
            selected={(job) => job.id === state.job}
          />
        )}
        {answer.hasMore && (
          <div class="jobs-more">
            <Button busy={loading} onClick={answer.more}>
              Older jobs
            </Button>
          </div>
        )}
      </Card>
    </>
  );
}

/** Draw again every so often: how long ago something was changes by itself. */
function useTicks(everyMs: number): void {
  const [, draw] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => draw((before) => before + 1), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
}

function Filters({ state }: { state: JobsState }) {
  const kinds = [...CHANGES, ...(state.reads || READS.some((one) => one === state.kind) ? READS : [])];
  const groups: readonly { value: Group; label: string }[] = [
    { value: "all", label: "All" },
    { value: "active", label: "Active" },
    { value: "succeeded", label: "Succeeded" },
    { value: "failed", label: "Failed" },
  ];
  return (
    <div class="jobs-filters" role="group" aria-label="Which jobs are listed">
      <Segmented label="States" value={state.group === "dead" ? "failed" : state.group} choices={groups} onChange={(group) => setState({ status: group === "all" ? null : group, job: null })} />
      <Select
        label="Kind"
        bare
        value={state.kind}
        choices={[{ value: "", label: "Every kind" }, ...kinds.map((kind) => ({ value: kind as string, label: kindText(kind) }))]}
        onChange={(kind) => setState({ kind, job: null })}
      />
      <Switch label="Searches too" checked={state.reads} onChange={(reads) => setState({ reads, kind: null, job: null })} />
    </div>
  );
}

function NoJobs({ state }: { state: JobsState }) {
  if (state.group !== "all" || state.kind !== "") {
    return (
      <Empty icon="check" title="No such jobs">
        <p>No job of yours is in such a state now.</p>
        <Button onClick={() => setState({ status: null, kind: null })}>All jobs</Button>
      </Empty>
    );
  }
  return (
    <Empty icon="jobs" title="No jobs yet">
      <p>Whatever you ingest, delete, train or migrate is shown here, for a day after its end. Searches are listed only if you ask for them.</p>
      <Button to={addressOf("collections")}>Collections</Button>
    </Empty>
  );
}

const COLUMNS: readonly Column<Job>[] = [
  {
    title: "Job",
    cell: (job) => (
      <span class="job-cell">
        {kindText(job.kind)}
        <span class="job-id">{job.id.slice(0, 8)}</span>
      </span>
    ),
  },
  { title: "State", cell: (job) => <StatusBadge status={job.status} /> },
  { title: "Items", width: "32%", cell: (job) => <Items job={job} /> },
  { title: "Took", numeric: true, minor: true, cell: (job) => tookText(job) },
  {
    title: "Accepted",
    numeric: true,
    minor: true,
    cell: (job) => <span title={time(job.created)}>{ago(job.created)}</span>,
  },
];

const TONES: Record<Status, Tone> = {
  queued: "neutral",
  running: "accent",
  succeeded: "good",
  failed: "bad",
  cancelled: "warning",
  expired: "warning",
  dead: "bad",
};

export function StatusBadge({ status }: { status: Status }) {
  return (
    <Badge tone={TONES[status]}>
      {status === "running" && <span class="pulse" aria-hidden="true" />}
      {status}
    </Badge>
  );
}

/** How many items are done and failed, as a bar and in figures. */
export function Items({ job }: { job: Job }) {
  const done = job.ok + job.failed;
  const text = hasEnded(job.status) ? plural(job.items, "item") : `${count(done)} of ${plural(job.items, "item")}`;
  const share = (items: number) => `${(items / Math.max(1, job.items)) * 100}%`;
  return (
    <div class="job-items">
      {(!hasEnded(job.status) || job.failed > 0) && (
        <span class="meter" role="meter" aria-label="Items done" aria-valuenow={done} aria-valuemin={0} aria-valuemax={Math.max(1, job.items)} aria-valuetext={text}>
          <span class={hasEnded(job.status) ? "job-part good" : "job-part"} style={{ width: share(job.ok) }} />
          <span class="job-part bad" style={{ left: share(job.ok), width: job.failed > 0 ? `max(3px, ${share(job.failed)})` : "0" }} />
        </span>
      )}
      <span>
        {text}
        {job.failed > 0 && <b class="job-failed">, {count(job.failed)} failed</b>}
      </span>
    </div>
  );
}

function tookText(job: Job): string {
  if (job.started === null) return job.status === "queued" ? "waits" : "–";
  const end = job.finished === null ? Date.now() : new Date(job.finished).getTime();
  return duration(Math.max(0, end - new Date(job.started).getTime()) / 1000);
}
