/** The labels of the lines, with the values of those that are open: each can be wanted or not. */

import { useState } from "preact/hooks";
import { Button } from "../../components/Button.js";
import { Icon } from "../../components/Icon.js";
import { ErrorState, Loading } from "../../components/States.js";
import { count } from "../../format.js";
import { useRequest } from "../../request.js";
import { type Bounds, type LogsState, setTest, whereQuery } from "./state.js";
import { type Label, type Labels, levelTone } from "./types.js";

const OPEN_AT_FIRST = 3;
const VALUES = 8;
/** Labels that are looked at first, then the others by name. */
const FIRST = ["level", "service", "host", "source"];

export function LabelsPanel({ state, bounds }: { state: LogsState; bounds: Bounds }) {
  const [narrowOpen, setNarrowOpen] = useState(false);
  const labels = useRequest<Labels>({ method: "GET", path: "/v1/logs/labels", query: whereQuery(state, bounds) });
  const rank = (label: Label) => (FIRST.includes(label.name) ? FIRST.indexOf(label.name) : FIRST.length);
  const shown = [...(labels.data?.labels ?? [])].sort((a, b) => rank(a) - rank(b));
  return (
    <aside class={narrowOpen ? "logs-labels open" : "logs-labels"} aria-label="Labels">
      <button type="button" class="logs-labels-toggle" aria-expanded={narrowOpen} onClick={() => setNarrowOpen(!narrowOpen)}>
        <Icon name="filter" size={15} /> Labels
        <Icon name={narrowOpen ? "up" : "down"} size={14} />
      </button>
      <div class="logs-labels-body">
        <h2>Labels</h2>
        {labels.problem && <ErrorState problem={labels.problem} retry={labels.reload} />}
        {!labels.data && !labels.problem && <Loading lines={5} label="Reading labels" />}
        {labels.data && shown.length === 0 && <p class="note">These lines have no labels.</p>}
        {shown.map((label, index) => (
          <LabelGroup key={label.name} label={label} state={state} bounds={bounds} lines={labels.data?.lines ?? 0} openAtFirst={index < OPEN_AT_FIRST} />
        ))}
      </div>
    </aside>
  );
}

interface GroupProps {
  label: Label;
  state: LogsState;
  bounds: Bounds;
  lines: number;
  openAtFirst: boolean;
}

function LabelGroup({ label, state, bounds, openAtFirst }: GroupProps) {
  const [open, setOpen] = useState(openAtFirst);
  const [all, setAll] = useState(false);
  // Of a label that is chosen the other values are shown too: so one can be changed for another.
  const others = { ...state, where: state.where.filter((test) => test.name !== label.name) };
  const values = useRequest<Labels>(
    open ? { method: "GET", path: "/v1/logs/labels", query: { ...whereQuery(others, bounds), name: label.name, limit: all ? 200 : VALUES } } : null,
  );
  const found = values.data?.labels[0];
  const most = Math.max(1, ...(found?.values.map((one) => one.lines) ?? []));
  return (
    <section class="label-group">
      <h3>
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
          <Icon name={open ? "down" : "right"} size={13} />
          {label.name}
          <span class="note">{count(found?.distinct ?? label.distinct)}</span>
        </button>
      </h3>
      {open && values.problem && <p class="hint bad">{values.problem.detail}</p>}
      {open && !found && values.loading && <Loading lines={2} label={`Reading values of ${label.name}`} />}
      {open && found && (
        <ul>
          {found.values.map((one) => (
            <LabelValue key={one.value} name={label.name} value={one.value} lines={one.lines} share={one.lines / most} state={state} />
          ))}
        </ul>
      )}
      {open && found && found.distinct > found.values.length && (
        <Button kind="quiet" small onClick={() => setAll(true)} disabled={all}>
          {all ? `The first ${found.values.length} of ${count(found.distinct)}` : `All ${count(found.distinct)} values`}
        </Button>
      )}
    </section>
  );
}

interface ValueProps {
  name: string;
  value: string;
  lines: number;
  share: number;
  state: LogsState;
}

function LabelValue({ name, value, lines, share, state }: ValueProps) {
  const test = state.where.find((one) => one.name === name && one.value === value);
  const wanted = test !== undefined && !test.not;
  const unwanted = test?.not === true;
  const tone = name === "level" ? levelTone(value) : undefined;
  return (
    <li class={`label-value ${wanted ? "wanted" : ""} ${unwanted ? "unwanted" : ""}`}>
      <button
        type="button"
        class="label-want"
        aria-pressed={wanted}
        title={wanted ? `Lines with any ${name}` : `Only lines with ${name}=${value}`}
        onClick={() => setTest(state, name, value, wanted ? null : false)}
      >
        <span class={`label-bar ${tone ?? "series-6"}`} style={{ width: `${Math.max(2, share * 100)}%` }} />
        <span class="label-text">{value === "" ? "(empty)" : value}</span>
        <span class="label-count">{count(lines)}</span>
      </button>
      <button
        type="button"
        class="label-not"
        aria-pressed={unwanted}
        aria-label={`Without ${name}=${value}`}
        title={unwanted ? `Lines with ${name}=${value} again` : `Without ${name}=${value}`}
        onClick={() => setTest(state, name, value, unwanted ? null : true)}
      >
        <Icon name="minus" size={13} />
      </button>
    </li>
  );
}
