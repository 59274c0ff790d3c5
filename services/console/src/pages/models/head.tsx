/** One head: its channels, its report in figures, and how its canary does. */

import { CodeSamples } from "../../components/CodeSamples.js";
import { Button } from "../../components/Button.js";
import { Segmented } from "../../components/Field.js";
import { Badge, Card, Facts, Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading, Notice } from "../../components/States.js";
import { ago, count, plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf, place, setQuery } from "../../router.js";
import { AcceptedCard, AgreementCard, CalibrationCard, MetricsCard, RiskCard } from "./figures.js";
import { ChannelBox, compared, history } from "./overview.js";
import { ReleaseButtons } from "./Release.js";
import { REGISTRY, promotion, report } from "./requests.js";
import type { Channel, HeadInfo, HeadReport, HeadVersion, Registry } from "./types.js";
import { taskOf } from "./types.js";

const EVERY_S = 5;

export function HeadView({ name }: { name: string }) {
  const info = useRequest<HeadInfo>({ method: "GET", path: `/v1/heads/${name}` }, { everyS: EVERY_S });
  const registry = useRequest<Registry>(REGISTRY, { everyS: EVERY_S });
  const head = info.data;
  const asked = place.value.query.get("channel");
  const channel: Channel = asked === "canary" && head?.canary ? "canary" : head && !head.stable ? "canary" : "stable";
  const version = head?.[channel];
  const rollout = registry.data?.heads[name];
  const reload = () => {
    info.reload();
    registry.reload();
  };
  return (
    <Page
      title={name}
      about={head ? `A head that ${taskOf(head)}${version?.reads ? `, reading ${version.reads.replace("_", " of ")}` : ""}.` : <>&nbsp;</>}
      actions={
        <>
          <Button kind="quiet" small icon="left" to={addressOf("models")}>
            All models
          </Button>
          <CodeSamples
            samples={[
              {
                title: "The report, with its figures",
                request: report(name, channel),
                python: `print(client.head_report("${name}"))`,
              },
              { title: "Promote the canary", request: promotion(name), python: `client.promote("${name}")` },
            ]}
          />
        </>
      }
    >
      {content()}
    </Page>
  );

  function content() {
    if (info.problem && !head) return <ErrorState problem={info.problem} retry={info.reload} />;
    if (!head) return <Card><Loading lines={6} /></Card>;
    return (
      <>
        <Card title="Channels" actions={rollout && <ReleaseButtons head={name} rollout={rollout} onChanged={reload} />}>
          <div class="channels">
            <ChannelBox name="stable" version={head.stable?.version} share={head.canary ? 1 - head.share : 1} />
            <ChannelBox name="canary" version={head.canary?.version} share={head.canary ? head.share : 0} note={rollout && (compared(rollout).slice(3) || undefined)} />
            <div class="channel">{rollout && <Facts facts={history(rollout)} />}</div>
          </div>
        </Card>
        {head.canary && <AgreementCard workers={registry.data?.workers ?? []} head={name} share={head.share} />}
        {head.stable && head.canary && (
          <Segmented
            label="Report of"
            value={channel}
            choices={[
              { value: "stable", label: "Report of the stable version" },
              { value: "canary", label: "Report of the canary" },
            ]}
            onChange={(value) => setQuery({ channel: value === "canary" ? value : null }, { replace: true })}
          />
        )}
        {version?.error && (
          <Notice tone="bad">
            Not served: {version.error.detail} ({version.error.code})
          </Notice>
        )}
        {version && !version.error && <Report name={name} channel={channel} version={version} />}
      </>
    );
  }
}

function Report({ name, channel, version }: { name: string; channel: Channel; version: HeadVersion }) {
  const answer = useRequest<HeadReport>(report(name, channel));
  const figures = answer.data?.figures;
  if (answer.problem) return <ErrorState problem={answer.problem} retry={answer.reload} />;
  if (!answer.data) return <Card><Loading lines={8} /></Card>;
  const classifies = version.task === "classify";
  const measured = (figures?.calibration ?? []).length > 0;
  return (
    <>
      {figures && classifies && (
        <>
          <div class="columns">
            <RiskCard figures={figures} />
            {measured ? <CalibrationCard figures={figures} /> : <AcceptedCard figures={figures} />}
          </div>
          {measured && <AcceptedCard figures={figures} />}
        </>
      )}
      {figures && !classifies && <MetricsCard figures={figures} />}
      {!figures && (
        <Empty icon="info" title="This worker gives no figures">
          <p>Its report is below; figures come with the next version of the workers.</p>
        </Empty>
      )}
      <div class="columns">
        <AboutCard version={version} />
        <Card title="The report as published">
          <details class="report">
            <summary>Markdown, {plural(answer.data.report.split("\n").length, "line")}</summary>
            <pre tabIndex={0}>{answer.data.report}</pre>
          </details>
        </Card>
      </div>
    </>
  );
}

function AboutCard({ version }: { version: HeadVersion }) {
  const labels = version.labels ?? [];
  return (
    <Card title="About this version">
      <Facts
        facts={[
          ["Version", <code key="v">{version.version}</code>],
          ["Trained", version.created ? ago(version.created) : "–"],
          ["Data", version.data?.join(", ") || "–"],
          ["Licence", version.licence ?? "–"],
          ["Space", <code key="s">{version.space}</code>],
          ...(labels.length > 0 ? [["Labels", <Labels key="l" labels={labels} />] as const] : []),
          ...(version.none_label ? [["Out of scope", <Badge key="o">{version.none_label}</Badge>] as const] : []),
        ]}
      />
    </Card>
  );
}

const SHOWN = 12;

function Labels({ labels }: { labels: readonly string[] }) {
  return (
    <span class="labels">
      {labels.slice(0, SHOWN).map((label) => (
        <Badge key={label}>{label}</Badge>
      ))}
      {labels.length > SHOWN && <span class="note">and {count(labels.length - SHOWN)} more</span>}
    </span>
  );
}
