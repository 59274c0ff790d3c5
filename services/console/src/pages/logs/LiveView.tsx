/** Lines as the platform accepts them, before any of them is searchable. */

import { useState } from "preact/hooks";
import { Button } from "../../components/Button.js";
import { Badge, Card } from "../../components/Layout.js";
import { Empty, ErrorState, Loading, Notice } from "../../components/States.js";
import { count, plural } from "../../format.js";
import { LineList } from "./LineList.js";
import { useTail } from "./lines.js";
import { queryBody, tailRequest } from "./requests.js";
import type { LogsState } from "./state.js";

const ALL = { from: null, to: null };

export function LiveView({ state }: { state: LogsState }) {
  const [paused, setPaused] = useState(false);
  const tail = useTail(tailRequest(state), queryBody({ ...state, statement: null, meaning: false }, ALL), paused);
  const { lines, dropped, missed, problem } = tail;
  return (
    <Card
      flush
      title="Live tail"
      note={`${plural(lines.length, "line")}${dropped > 0 ? `, ${count(dropped)} older ones left out` : ""}`}
      actions={
        <>
          <ConnectionBadge state={tail.state} paused={paused} />
          <Button small icon={paused ? "play" : "pause"} pressed={paused} onClick={() => setPaused(!paused)}>
            {paused ? "Go on" : "Hold"}
          </Button>
        </>
      }
    >
      {problem && <ErrorState problem={problem} />}
      {missed !== 0 && (
        <Notice tone="warning">
          {missed === null ? "Some lines are" : `${plural(missed, "line")} ${missed === 1 ? "is" : "are"}`} missing here: the platform no longer had them for
          the tail. They are among the stored lines.
        </Notice>
      )}
      {!problem && lines.length === 0 && tail.state === "connecting" && (
        <div class="logs-wait">
          <Loading lines={5} label="Connecting to the live tail" />
        </div>
      )}
      {!problem && lines.length === 0 && tail.state !== "connecting" && (
        <Empty icon="play" title="Waiting for lines">
          <p>A line is shown within a second of its acceptance.</p>
        </Empty>
      )}
      {lines.length > 0 && <LineList label={`Newest lines of ${state.collection}`} lines={lines} contains={state.text} follow />}
    </Card>
  );
}

function ConnectionBadge({ state, paused }: { state: "connecting" | "open" | "lost"; paused: boolean }) {
  if (paused) return <Badge tone="warning">held</Badge>;
  if (state === "open") return <Badge tone="good">live</Badge>;
  return <Badge tone="warning">{state === "lost" ? "connecting again" : "connecting"}</Badge>;
}
