/** How many lines there are when, by the values of a label; a range is brushed. */

import { Button } from "../../components/Button.js";
import { Select } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { type Layer, StackedBars } from "../../components/StackedBars.js";
import { ErrorState, Loading } from "../../components/States.js";
import { duration, plural } from "../../format.js";
import { type Answer, useRequest } from "../../request.js";
import { type Bounds, type LogsState, change, whereQuery } from "./state.js";
import { type Labels, type Statements, type Volume, levelTone } from "./types.js";

const SHOWN = 5;

interface Props {
  state: LogsState;
  bounds: Bounds;
  volume: Answer<Volume>;
  /** Of the statement that is chosen. */
  own: Answer<Statements>;
}

export function VolumeCard({ state, bounds, volume, own }: Props) {
  const labels = useRequest<Labels>({ method: "GET", path: "/v1/logs/labels", query: whereQuery(state, bounds) });
  const names = labels.data?.labels.map((label) => label.name) ?? [];
  const choices = ["none", ...new Set([state.by, ...names])];
  const data = volume.data;
  const statement = state.statement === null ? undefined : own.data?.statements[0];
  const awaited = state.statement !== null && own.data === undefined;
  const lines = state.statement === null ? data?.lines : own.data?.lines;
  return (
    <Card
      title={state.statement === null ? "Lines over time" : "Lines of the statement over time"}
      note={lines !== undefined && data !== undefined ? `${plural(lines, "line")}${textNote(state)}` : undefined}
      actions={
        <>
          {state.statement === null && (
            <Select
              label="Colours by"
              value={state.by}
              choices={choices.map((name) => ({ value: name, label: name === "none" ? "one colour" : name }))}
              onChange={(by) => change({ by: by === "level" ? null : by })}
            />
          )}
          {(state.from !== null || state.to !== null) && (
            <Button small icon="minus" onClick={() => zoomOut(state)}>
              Zoom out
            </Button>
          )}
        </>
      }
    >
      {volume.problem && <ErrorState problem={volume.problem} retry={volume.reload} />}
      {own.problem && <ErrorState problem={own.problem} retry={own.reload} />}
      {(!data || awaited) && !volume.problem && !own.problem && (
        <div class="volume-wait">
          <Loading lines={4} label="Counting lines" />
        </div>
      )}
      {data && !awaited && !volume.problem && !own.problem && (
        <div class={volume.loading ? "stale" : undefined} aria-busy={volume.loading}>
          <StackedBars
            label={`Lines over time, in intervals of ${duration(data.interval_s)}`}
            yLabel={`lines in ${duration(data.interval_s)}`}
            starts={data.starts}
            intervalS={data.interval_s}
            layers={state.statement === null ? layersOf(data, state.by) : [{ label: "lines", tone: "series-1", counts: aligned(data, own.data, statement?.counts ?? []) }]}
            onBrush={(from, to) => change({ from, to, range: null, live: null })}
          />
        </div>
      )}
    </Card>
  );
}

function textNote(state: LogsState): string {
  if (state.text === "" || state.meaning) return "";
  return state.statement === null && !state.live ? " with the text" : " with and without the text";
}

/** Return the values of a label as layers: levels by their weight, others by their frequency. */
function layersOf(volume: Volume, by: string): Layer[] {
  if (volume.series.length === 0 || (volume.series.length === 1 && volume.series[0]?.value === null)) {
    return [{ label: "lines", tone: "series-1", counts: volume.counts }];
  }
  const isLevel = volume.series.some((one) => levelTone(one.value) !== undefined);
  const shown = volume.series.slice(0, SHOWN);
  const layers = shown.map((one, index) => ({
    label: one.value ?? `without ${by}`,
    tone: (isLevel ? levelTone(one.value) : undefined) ?? (one.value === null || isLevel ? "series-6" : `series-${index + 1}`),
    counts: one.counts,
  }));
  if (isLevel) layers.sort((a, b) => RANKS.indexOf(b.tone) - RANKS.indexOf(a.tone));
  const sum = (index: number) => shown.reduce((total, one) => total + (one.counts[index] ?? 0), 0);
  const rest = volume.counts.map((value, index) => value - sum(index));
  if (rest.some((value) => value > 0)) layers.push({ label: "other", tone: "series-6", counts: rest });
  return layers;
}

/** The most severe level stands at the bottom, where its height can be read. */
const RANKS = ["series-6", "level-debug", "level-info", "level-warning", "level-error", "level-fatal"];

/** Return counts of a statement in the intervals of the volume. */
function aligned(volume: Volume, own: Statements | undefined, counts: readonly number[]): number[] {
  const at = new Map((own?.starts ?? []).map((start, index) => [start, counts[index] ?? 0]));
  return volume.starts.map((start) => at.get(start) ?? 0);
}

/** Show three times as long a range around this one. */
function zoomOut(state: LogsState): void {
  const { from, to } = state;
  if (from === null || to === null) change({ from: null, to: null });
  else change({ from: from - (to - from), to: to + (to - from) });
}

