/** Whether work gets done, what waits, and whether what is stored still reads back. */

import { useState } from "preact/hooks";
import { type ApiRequest, call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Icon } from "../../components/Icon.js";
import { Badge, Card, Stat, Stats } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { ago, bytes, count, duration, percent, plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { Link, addressOf } from "../../router.js";
import { may } from "../../session.js";
import { AuditCard } from "./AuditCard.js";
import type { QueueState, ScrubState, Status } from "./types.js";

const STATUS: ApiRequest = { method: "GET", path: "/v1/status" };
const SCRUB: ApiRequest = { method: "GET", path: "/v1/scrub" };
const ASK: ApiRequest = { method: "POST", path: "/v1/scrub" };
const EVERY_S = 3;

export function HealthView() {
  const status = useRequest<Status>(STATUS, { everyS: EVERY_S });
  const found = status.data;
  if (status.problem && !found) return <Card><ErrorState problem={status.problem} retry={status.reload} /></Card>;
  if (!found) return <Card><Loading lines={6} /></Card>;
  return (
    <>
      <ReadyCard status={found} />
      <div class="columns">
        <QueuesCard queues={found.queues} />
        <BacklogCard status={found} />
      </div>
      <AuditCard scrubbed={found.scrubbed} />
      <div class="columns">
        {may("admin") ? <ScrubCard /> : <ScrubTotals status={found} />}
        <DisksCard status={found} />
      </div>
    </>
  );
}

function ReadyCard({ status }: { status: Status }) {
  const age = (value: number | null) => (value === null ? "never" : duration(value));
  return (
    <Card>
      <div class="ready">
        <div class={status.ready ? "ready-state good" : "ready-state bad"} role="status">
          <span class="ready-icon">
            <Icon name={status.ready ? "check" : "warning"} size={22} />
          </span>
          <div>
            <p class="ready-word">{status.ready ? "Ready" : "Not ready"}</p>
            <p class="note">{status.ready ? "texts are taken in, found and read back" : status.reason}</p>
          </div>
        </div>
        <Stats>
          <Stat label="Since the last embedding" value={age(status.last_embed_age_s)} />
          <Stat label="Since a worker's heartbeat" value={age(status.worker_beat_age_s)} />
          <Stat label="Workers" value={count(status.workers.length)} note={status.workers.length === 0 ? "none has been heard of" : undefined} />
          <Stat
            label="Trainer"
            value={status.trainer_beat_age_s === null ? "none" : status.trainer_beat_age_s > 30 ? "gone" : "runs"}
            note={status.trainer_beat_age_s === null ? undefined : `heard of ${duration(status.trainer_beat_age_s)} ago`}
          />
        </Stats>
        <CodeSamples samples={[{ title: "The state of the platform", request: STATUS, python: "print(client.status())" }]} />
      </div>
    </Card>
  );
}

const PURPOSE: Record<string, string> = {
  interactive: "searches, answers, reads",
  bulk: "ingest, maps, groups",
  scrub: "verify, read again",
  fit: "codecs fitted to texts",
  train: "heads",
};

function QueuesCard({ queues }: { queues: readonly QueueState[] }) {
  const most = Math.max(1, ...queues.map((queue) => queue.queued + queue.running));
  return (
    <Card title="Queues" note="slices of all callers" flush>
      <Table
        caption="Queues"
        rows={queues}
        rowKey={(queue) => queue.queue}
        columns={[
          {
            title: "Queue",
            cell: (queue) => (
              <>
                {queue.queue} <span class="queue-purpose note">{PURPOSE[queue.queue]}</span>
              </>
            ),
          },
          { title: "Due", numeric: true, cell: (queue) => count(queue.queued) },
          { title: "Later", numeric: true, minor: true, cell: (queue) => count(queue.delayed) },
          { title: "Running", numeric: true, cell: (queue) => count(queue.running) },
          {
            title: "Oldest",
            numeric: true,
            cell: (queue) =>
              queue.queued === 0 ? <span class="note">–</span> : <span class={queue.oldest_s > 60 ? "late" : undefined}>{duration(queue.oldest_s)}</span>,
          },
          {
            title: "Load",
            minor: true,
            width: "90px",
            cell: (queue) => (
              <span class="queue-meter">
                <Meter label={`${queue.queue}: due and running`} value={queue.queued + queue.running} max={most} text={count(queue.queued + queue.running)} />
              </span>
            ),
          },
        ]}
      />
    </Card>
  );
}

function BacklogCard({ status }: { status: Status }) {
  const { backlog } = status;
  return (
    <Card title="Backlog" note="what waits outside the queues">
      <div class="stack">
        {backlog.read_only && (
          <p class="read-only">
            <Badge tone="bad">read-only</Badge> The ledger is older than what it has acknowledged: nothing is accepted.
          </p>
        )}
        <Stats>
          <Stat
            label="Dead letters"
            value={backlog.dead > 0 ? <Link to={addressOf("jobs", { status: "dead" })}>{count(backlog.dead)}</Link> : "0"}
            tone={backlog.dead > 0 ? "bad" : "neutral"}
            note={backlog.dead > 0 ? "slices that failed too often" : "nothing failed for good"}
          />
          <Stat
            label="To verify"
            value={count(backlog.unverified)}
            note={backlog.unverified > 0 ? `${bytes(backlog.bytes_unverified)} of text kept until then` : "all texts were read back"}
          />
          <Stat label="Webhooks" value={count(backlog.webhooks)} note="messages to send" />
          <Stat label="Orphans" value={count(backlog.orphans)} tone={backlog.orphans > 0 ? "warning" : "neutral"} note="points without an entry" />
        </Stats>
      </div>
    </Card>
  );
}

function ScrubCard() {
  const answer = useRequest<ScrubState>(SCRUB, { everyS: EVERY_S });
  const [busy, setBusy] = useState(false);
  const scrub = answer.data;
  const ask = async () => {
    setBusy(true);
    try {
      await call(ASK, { detached: true });
      toast("A pass over all records begins.");
      answer.reload();
    } catch (error) {
      toastProblem(error);
    }
    setBusy(false);
  };
  const running = scrub?.running ?? false;
  return (
    <Card
      title="Scrub"
      note="reads every stored record again"
      actions={
        <span class="actions">
          <CodeSamples
            samples={[
              { title: "The newest pass", request: SCRUB, python: "print(client.scrub())" },
              { title: "Begin a pass now", request: ASK, python: "client.scrub(now=True)" },
            ]}
          />
          <Button small busy={busy} disabled={running || (scrub?.asked ?? false)} onClick={() => void ask()}>
            Read all now
          </Button>
        </span>
      }
    >
      {answer.problem && !scrub ? (
        <ErrorState problem={answer.problem} retry={answer.reload} />
      ) : !scrub ? (
        <Loading lines={4} />
      ) : (
        <ScrubBody scrub={scrub} />
      )}
    </Card>
  );
}

function ScrubBody({ scrub }: { scrub: ScrubState }) {
  if (scrub.number === 0 && !scrub.running && !scrub.asked) {
    return (
      <Empty icon="exact" title="No pass has begun yet">
        <p>One begins by itself, and goes on in quiet moments.</p>
      </Empty>
    );
  }
  const recent = scrub.state === "recent" ? scrub.recent : null;
  const share = recent ? recent.progress : scrub.running ? scrub.progress : 1;
  return (
    <div class="stack">
      <div>
        <p class="stage">
          <Badge tone={scrub.running ? "accent" : scrub.damaged > 0 ? "bad" : "good"}>
            {recent ? "recent documents first" : scrub.running ? `pass ${scrub.number} runs` : scrub.asked ? "requested" : `pass ${scrub.number} ended`}
          </Badge>
          <span class="note">{scrub.running ? `since ${ago(scrub.started)}` : ago(scrub.ended)}</span>
          <b>{percent(share)}</b>
        </p>
        <Meter label="Progress of the pass" value={share} tone={scrub.damaged > 0 ? "bad" : scrub.running ? "accent" : "good"} text={percent(share)} />
      </div>
      <Stats>
        <Stat label="Read" value={count(scrub.documents)} note={bytes(scrub.bytes)} />
        <Stat label="Sound" value={count(scrub.sound)} tone={scrub.documents > 0 && scrub.sound === scrub.documents ? "good" : "neutral"} />
        <Stat label="Repaired" value={count(scrub.repaired)} tone={scrub.repaired > 0 ? "warning" : "neutral"} />
        <Stat label="Damaged" value={count(scrub.damaged)} tone={scrub.damaged > 0 ? "bad" : "neutral"} />
      </Stats>
      {(scrub.damaged_documents?.length ?? 0) > 0 && (
        <Table
          caption="Damaged documents"
          rows={scrub.damaged_documents ?? []}
          rowKey={(one) => `${one.collection}/${one.id}`}
          to={(one) => addressOf("documents", { collection: one.collection, id: one.id })}
          columns={[
            { title: "Damaged document", cell: (one) => one.id },
            { title: "Collection", cell: (one) => one.collection },
          ]}
        />
      )}
    </div>
  );
}

/** What a key without the scope `admin` sees of the scrub. */
function ScrubTotals({ status }: { status: Status }) {
  const { sound, repaired, damaged } = status.scrubbed;
  return (
    <Card title="Scrub" note="of all passes so far">
      <Stats>
        <Stat label="Sound" value={count(sound)} />
        <Stat label="Repaired" value={count(repaired)} />
        <Stat label="Damaged" value={count(damaged)} tone={damaged > 0 ? "bad" : "neutral"} />
      </Stats>
      <p class="note">Its newest pass, and which documents are damaged, are for keys with the scope admin.</p>
    </Card>
  );
}

function DisksCard({ status }: { status: Status }) {
  return (
    <Card title="Disks" note="of the workers' data folders">
      {status.workers.length === 0 ? (
        <Empty icon="warning" title="No worker has said what room it has" />
      ) : (
        <ul class="disks">
          {status.workers.map((worker) => {
            const disk = worker.disk;
            const used = disk ? disk.bytes_total - disk.bytes_free : 0;
            return (
              <li key={worker.worker}>
                <p class="disk-head">
                  <code class="wrap">{worker.worker}</code>
                  {worker.disk_full && <Badge tone="bad">full</Badge>}
                  <span class="note">{plural(worker.engines, "engine")}</span>
                </p>
                {disk ? (
                  <>
                    <Meter
                      label={`Disk of ${worker.worker}`}
                      value={used}
                      max={disk.bytes_total}
                      mark={disk.bytes_total - disk.bytes_floor}
                      tone={worker.disk_full ? "bad" : disk.bytes_free < 4 * disk.bytes_floor ? "warning" : "accent"}
                      text={`${bytes(disk.bytes_free)} free of ${bytes(disk.bytes_total)}`}
                    />
                    <p class="note">
                      {bytes(disk.bytes_free)} free of {bytes(disk.bytes_total)}; writes stop below {bytes(disk.bytes_floor)}
                    </p>
                  </>
                ) : (
                  <p class="note">says nothing of its disk</p>
                )}
              </li>
            );
          })}
        </ul>
      )}
    </Card>
  );
}
