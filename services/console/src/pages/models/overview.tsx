/** What the channels serve, for the artifact and each head, and what each worker does serve. */

import type { ComponentChildren } from "preact";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Badge, Card, Facts, Page } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { Table } from "../../components/Table.js";
import { ago, count, percent, plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf } from "../../router.js";
import { may } from "../../session.js";
import { ReleaseButtons } from "./Release.js";
import { HEADS, REGISTRY, promotion } from "./requests.js";
import { type HeadInfo, type HeadList, type Registry, type Rollout, headline, shortVersion, taskOf, trialOf } from "./types.js";

const EVERY_S = 5;

export function ModelsOverview() {
  const registry = useRequest<Registry>(REGISTRY, { everyS: EVERY_S });
  const heads = useRequest<HeadList>(HEADS, { everyS: EVERY_S });
  const reload = () => {
    registry.reload();
    heads.reload();
  };
  return (
    <Page
      title="Models"
      about="An artifact makes vectors and patches; heads classify, answer and score. A new version is a canary first."
      actions={
        <>
          <CodeSamples
            samples={[
              { title: "What the channels serve", request: REGISTRY, python: "state = client.registry()\nprint(state.artifact, state.heads)" },
              { title: "The heads", request: HEADS, python: "for head in client.heads():\n    print(head.name, head.stable)" },
              { title: "Promote the canary of a head", request: promotion("intents"), python: 'client.promote("intents")' },
            ]}
          />
          {may("admin") && (
            <Button kind="primary" icon="plus" to={addressOf("models/train")}>
              Train a head
            </Button>
          )}
        </>
      }
    >
      {content()}
    </Page>
  );

  function content() {
    const state = registry.data;
    if (registry.problem && !state) return <ErrorState problem={registry.problem} retry={registry.reload} />;
    if (!state) return <Card><Loading lines={6} /></Card>;
    return (
      <>
        <ArtifactCard registry={state} onChanged={reload} />
        <Card title="Heads" note={heads.data ? plural(heads.data.heads.length, "head") : undefined} flush>
          {heads.problem && !heads.data ? (
            <ErrorState problem={heads.problem} retry={heads.reload} />
          ) : !heads.data ? (
            <div class="card-body"><Loading lines={4} /></div>
          ) : (
            <HeadsTable heads={heads.data.heads} registry={state} onChanged={reload} />
          )}
        </Card>
        <WorkersCard registry={state} />
      </>
    );
  }
}

function ArtifactCard({ registry, onChanged }: { registry: Registry; onChanged: () => void }) {
  const { artifact } = registry;
  const trial = trialOf(registry.workers, null);
  return (
    <Card
      title="Artifact"
      note="encoder, decoder and codecs of new records"
      actions={<ReleaseButtons head={null} rollout={artifact} onChanged={onChanged} />}
    >
      <div class="channels">
        <ChannelBox name="stable" version={artifact.stable} share={artifact.canary ? 1 - artifact.share : 1} />
        <ChannelBox
          name="canary"
          version={artifact.canary}
          share={artifact.canary ? artifact.share : 0}
          note={trial ? `${count(trial.passed)} slices passed, ${count(trial.failed)} failed${compared(artifact)}` : undefined}
        />
        <div class="channel">
          <Facts facts={history(artifact)} />
        </div>
      </div>
    </Card>
  );
}

/** One channel: which version it serves, and how many of the jobs that gets. */
export function ChannelBox(props: { name: string; version: string | null | undefined; share: number; note?: string | undefined }) {
  const { name, version, note } = props;
  const share = version ? props.share : 0;
  return (
    <div class={version ? "channel" : "channel none"}>
      <p class="channel-name">
        <Badge tone={name === "canary" && version ? "warning" : version ? "good" : "neutral"}>{name}</Badge>
      </p>
      <p class="channel-version">{version ? <code>{version}</code> : "none"}</p>
      <Meter label={`Share of the jobs: ${name}`} value={share} tone={name === "canary" ? "warning" : "good"} text={percent(share)} />
      <p class="note">{version ? `${percent(share)} of the jobs` : name === "canary" ? "no version on trial" : "no version yet"}{note && ` · ${note}`}</p>
    </div>
  );
}

/** Say how a canary compares with the stable version; nothing before the first pair. */
export function compared({ comparison }: Rollout): string {
  if (!comparison) return "";
  const { agreed, differed, p95_ms_canary, p95_ms_stable, labels, brier_canary, brier_stable } = comparison;
  const parts: string[] = [];
  if (agreed + differed > 0) parts.push(`agrees ${percent(agreed / (agreed + differed))}`);
  if (p95_ms_canary && p95_ms_stable) parts.push(`p95 ${percent(p95_ms_canary / p95_ms_stable)} of the stable version's`);
  if (labels > 0) parts.push(`Brier score ${(brier_canary ?? 0).toFixed(3)}, stable ${(brier_stable ?? 0).toFixed(3)}, on ${plural(labels, "label")}`);
  return parts.map((part) => ` · ${part}`).join("");
}

export function history(rollout: Rollout): [string, ComponentChildren][] {
  const gone = rollout.withdrawn;
  return [
    ["Before", rollout.previous ? <code>{rollout.previous}</code> : "nothing to go back to"],
    [
      "Withdrawn",
      gone ? (
        <>
          <code>{shortVersion(gone.version)}</code> {ago(gone.time)}: {gone.reason}
        </>
      ) : (
        "none"
      ),
    ],
  ];
}

function HeadsTable(props: { heads: readonly HeadInfo[]; registry: Registry; onChanged: () => void }) {
  const { heads, registry, onChanged } = props;
  const releasable = may("admin") && heads.some(({ name }) => registry.heads[name]?.canary || registry.heads[name]?.previous);
  if (heads.length === 0) {
    return (
      <Empty icon="models" title="There is no head yet">
        <p>Train one on labelled texts, or on the records of a collection.</p>
      </Empty>
    );
  }
  return (
    <Table
      caption="Heads"
      rows={heads}
      rowKey={(head) => head.name}
      to={(head) => addressOf(`models/heads/${head.name}`)}
      columns={[
        { title: "Head", cell: (head) => head.name },
        { title: "Task", minor: true, cell: (head) => taskOf(head) },
        { title: "Measured", minor: true, numeric: true, cell: (head) => <Measured head={head} /> },
        { title: "Stable", cell: (head) => <Version head={head} channel="stable" /> },
        { title: "Canary", cell: (head) => <Canary head={head} registry={registry} /> },
        ...(releasable ? [{
          title: "Release",
          minor: true,
          cell: (head: HeadInfo) => {
            const rollout = registry.heads[head.name];
            return rollout ? <ReleaseButtons head={head.name} rollout={rollout} onChanged={onChanged} /> : null;
          },
        }] : []),
      ]}
    />
  );
}

function Measured({ head }: { head: HeadInfo }) {
  const figure = headline(head.stable ?? head.canary);
  if (!figure) return <span class="note">–</span>;
  return (
    <>
      {percent(figure.value, 1)} <span class="note">{figure.name}</span>
    </>
  );
}

function Version({ head, channel }: { head: HeadInfo; channel: "stable" | "canary" }) {
  const version = head[channel];
  if (!version) return <span class="note">–</span>;
  return (
    <span title={version.version}>
      <code>{shortVersion(version.version)}</code>{" "}
      {version.error && <Badge tone="bad" title={version.error.detail}>not served</Badge>}
    </span>
  );
}

function Canary({ head, registry }: { head: HeadInfo; registry: Registry }) {
  if (!head.canary) return <span class="note">–</span>;
  const rollout = registry.heads[head.name];
  return (
    <>
      <Version head={head} channel="canary" /> <span class="note">{percent(head.share)}{rollout && compared(rollout)}</span>
    </>
  );
}

function WorkersCard({ registry }: { registry: Registry }) {
  const refused = registry.workers.flatMap((worker) => [
    ...(worker.artifact?.refused ?? []).map((one) => ({ worker: worker.worker, what: "artifact", ...one })),
    ...(worker.heads ?? []).flatMap((head) =>
      (["stable", "canary"] as const).flatMap((channel) => {
        const version = head[channel];
        return version?.error ? [{ worker: worker.worker, what: head.name, channel, name: version.version, error: version.error }] : [];
      }),
    ),
  ]);
  return (
    <div class="columns">
      <Card title="Workers" flush>
        {registry.workers.length === 0 ? (
          <Empty icon="warning" title="No worker has said what it serves">
            <p>It says so within ten seconds of its start.</p>
          </Empty>
        ) : (
          <Table
            caption="Workers and what they serve"
            rows={registry.workers}
            rowKey={(worker) => worker.worker}
            columns={[
              { title: "Worker", cell: (worker) => <code class="wrap">{worker.worker}</code> },
              { title: "Serves", cell: (worker) => worker.artifact?.stable?.name ?? "–" },
              { title: "Canary", minor: true, cell: (worker) => worker.artifact?.canary?.name ?? "–" },
              { title: "Engines", numeric: true, cell: (worker) => count(worker.engines ?? 0) },
            ]}
          />
        )}
      </Card>
      <Card title="Refused" flush={refused.length > 0} note={refused.length > 0 ? plural(refused.length, "version") : undefined}>
        {refused.length === 0 ? (
          <p class="note">Every worker serves what the channels name.</p>
        ) : (
          <Table
            caption="Versions that workers refused"
            rows={refused}
            rowKey={(one) => `${one.worker} ${one.what} ${one.channel}`}
            columns={[
              { title: "Version", cell: (one) => <><code>{shortVersion(one.name)}</code> <span class="note">{one.what}, {one.channel}</span></> },
              { title: "Why", cell: (one) => <><Badge tone="bad">{one.error.code}</Badge> {one.error.detail}</> },
              { title: "Worker", minor: true, cell: (one) => <code class="wrap">{one.worker}</code> },
            ]}
          />
        )}
      </Card>
    </div>
  );
}
