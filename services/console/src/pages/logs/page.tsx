/** Logs: how many lines when, which labels and statements, and the lines themselves, as they come too. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { chosen, collectionsProblem, readCollections, useCollections } from "../../collections.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Card, Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading, MissingNotice, Notice } from "../../components/States.js";
import { Tabs } from "../../components/Tabs.js";
import { count, duration } from "../../format.js";
import { type Answer, useRequest } from "../../request.js";
import { addressOf } from "../../router.js";
import { LabelsPanel } from "./LabelsPanel.js";
import { LineDialog } from "./LineDialog.js";
import { LinesView } from "./LinesView.js";
import { LiveView } from "./LiveView.js";
import { StatementsView } from "./StatementsView.js";
import { Toolbar } from "./Toolbar.js";
import { VolumeCard } from "./VolumeCard.js";
import type { Waiting } from "./lines.js";
import { ofStatementRequest, queryBody, samplesOf } from "./requests.js";
import { type Bounds, type LogsState, type View, boundsOf, change, containsOf, logsState, whereQuery } from "./state.js";
import type { Statements, Volume } from "./types.js";

export default function LogsPage() {
  const all = useCollections();
  const given = logsState();
  if (all === null) {
    const problem = collectionsProblem.value;
    return <Page title="Logs">{problem ? <ErrorState problem={problem} retry={() => void readCollections()} /> : <Loading lines={6} />}</Page>;
  }
  const logs = all.filter((one) => one.kind === "logs");
  const name = given.collection || chosen(null, logs)?.name;
  if (name === undefined) return <NoLogs />;
  return <Logs state={{ ...given, collection: name }} names={logs.map((one) => one.name)} />;
}

const LIVE_COUNT_MS = 10_000;

function NoLogs() {
  return (
    <Page title="Logs">
      <Card>
        <Empty icon="logs" title="No log collections yet">
          <p>A collection of kind logs keeps lines together: a statement shares a vector, and every line is read back byte for byte.</p>
          <pre class="logs-howto">
            <code>{"verso collections create web --kind logs\nverso tail /var/log/app.log -c web --label service=shop"}</code>
          </pre>
          <Button to={addressOf("collections")}>Collections</Button>
        </Empty>
      </Card>
    </Page>
  );
}

function Logs({ state, names }: { state: LogsState; names: readonly string[] }) {
  const [nowS, setNowS] = useState(() => Math.floor(Date.now() / 1000));
  const [round, setRound] = useState(0);
  // "Last hour" is that before the last refresh, not before each drawing of the page.
  const bounds = useMemo(() => boundsOf(state, nowS), [state.from, state.to, state.lastS, nowS]);
  const where = whereQuery(state, bounds);
  const volume = useRequest<Volume>({
    method: "GET",
    path: "/v1/logs/volume",
    query: { ...where, contains: containsOf(state), by: state.by === "none" ? null : state.by },
  });
  const own = useRequest<Statements>(ofStatementRequest(state, bounds, volume.data?.interval_s));
  const refresh = () => {
    setNowS(Math.floor(Date.now() / 1000));
    volume.reload();
  };
  useEffect(() => {
    if (!state.live) return undefined;
    const timer = setInterval(refresh, LIVE_COUNT_MS);
    return () => clearInterval(timer);
  }, [state.live]);

  const samples = samplesOf(state, bounds, nowS, volume.data?.interval_s);
  return (
    <Page
      title="Logs"
      wide
      about="Lines byte for byte as they came, by time, label, statement and meaning."
      actions={
        <>
          <CodeSamples samples={samples} />
          <Button small icon="refresh" label="Refresh" onClick={() => (refresh(), setRound(round + 1))} />
          <Button
            small
            icon={state.live ? "pause" : "play"}
            pressed={state.live}
            onClick={() => change({ live: !state.live, view: null, statement: null, "by-meaning": null })}
          >
            Live tail
          </Button>
        </>
      }
    >
      <Toolbar state={state} names={names} statement={own.data?.statements[0]?.statement} />
      <MissingNotice names={volume.data?.missing_partitions} />
      {volume.data && <WaitingNotice waiting={volume.data.waiting} live={state.live} />}
      {!names.includes(state.collection) && volume.problem ? (
        <ErrorState problem={volume.problem} retry={volume.reload} />
      ) : (
        <Found key={round} state={state} bounds={bounds} nowS={nowS} volume={volume} own={own} />
      )}
      <LineDialog state={state} />
    </Page>
  );
}

interface FoundProps {
  state: LogsState;
  bounds: Bounds;
  nowS: number;
  volume: Answer<Volume>;
  /** Of the statement that is chosen. */
  own: Answer<Statements>;
}

function Found({ state, bounds, nowS, volume, own }: FoundProps) {
  const unchosen = state.statement === null && !state.meaning;
  return (
    <div class="logs-grid">
      <LabelsPanel state={state} bounds={bounds} />
      <div class="logs-main">
        {state.live && <LiveView state={state} />}
        <VolumeCard state={state} bounds={bounds} volume={volume} own={own} />
        {!state.live && (
          <Tabs label="Lines or statements" tabs={TABS} selected={state.view} onSelect={(view) => change({ view: view === "lines" ? null : view })}>
            {state.view === "lines" ? (
              <LinesView state={state} body={queryBody(state, bounds)} total={unchosen ? volume.data?.lines : undefined} />
            ) : (
              <StatementsView state={state} bounds={bounds} nowS={nowS} intervalS={volume.data?.interval_s} />
            )}
          </Tabs>
        )}
      </div>
    </div>
  );
}

const TABS: readonly { id: View; label: string }[] = [
  { id: "lines", label: "Lines" },
  { id: "statements", label: "Statements" },
];

function WaitingNotice({ waiting, live }: { waiting: Waiting; live: boolean }) {
  const lines = waiting.lines ?? 0;
  if (lines === 0 || live) return null;
  return (
    <Notice>
      {count(lines)} accepted {lines === 1 ? "line is" : "lines are"} not searchable yet
      {waiting.oldest_s ? `, the oldest for ${duration(waiting.oldest_s)}` : ""}. The live tail shows them already.
    </Notice>
  );
}
