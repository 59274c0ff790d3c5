/** Which lines are meant: collection, text, times, and what was chosen of labels and statements. */

import { useEffect, useState } from "preact/hooks";
import { remember } from "../../collections.js";
import { Button } from "../../components/Button.js";
import { Dialog } from "../../components/Dialog.js";
import { Segmented, Select, TextField } from "../../components/Field.js";
import { Icon } from "../../components/Icon.js";
import { momentText } from "../../components/ticks.js";
import { type LogsState, RANGES, change, setTest, testText } from "./state.js";

const CUSTOM = "custom";

interface Props {
  state: LogsState;
  names: readonly string[];
  /** The statement that is chosen, once it is known. */
  statement: string | undefined;
}

export function Toolbar({ state, names, statement }: Props) {
  const [text, setText] = useState(state.text);
  useEffect(() => setText(state.text), [state.text]);
  const known = names.includes(state.collection) ? names : [...names, state.collection];
  return (
    <div class="logs-toolbar">
      <form
        class="logs-form"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          change({ q: text });
        }}
      >
        <Select
          label="Collection"
          value={state.collection}
          choices={known.map((name) => ({ value: name, label: name }))}
          onChange={(collection) => {
            remember(collection);
            change({ collection, statement: null, where: null });
          }}
        />
        <div class="logs-find">
          <TextField
            label={state.meaning ? "Lines about" : "Lines that contain"}
            value={text}
            type="search"
            name="q"
            autocomplete="off"
            spellcheck={false}
            placeholder={state.meaning ? "a payment was refused" : "these bytes, such as timeout"}
            data-page-field
            onInput={setText}
          />
          <Segmented
            label="How lines are found"
            value={state.meaning ? "meaning" : "text"}
            choices={[
              { value: "text", label: "Text", title: "Lines that have these bytes in them" },
              { value: "meaning", label: "Meaning", title: "Lines of the nearest statements first", disabled: state.live },
            ]}
            onChange={(mode) => change({ q: text, "by-meaning": mode === "meaning" })}
          />
          <Button type="submit" kind="primary">
            Find
          </Button>
        </div>
        <TimeRange state={state} />
      </form>
      <Chosen state={state} statement={statement} />
    </div>
  );
}

function TimeRange({ state }: { state: LogsState }) {
  const [open, setOpen] = useState(false);
  const own = state.from !== null || state.to !== null;
  const value = own ? CUSTOM : (RANGES.find((one) => one.lastS === state.lastS)?.value ?? "");
  return (
    <>
      <Select
        label="Times"
        value={value}
        disabled={state.live}
        choices={[
          ...RANGES.map((one) => ({ value: one.value as string, label: one.label as string })),
          { value: CUSTOM, label: own ? rangeText(state) : "From … to …" },
        ]}
        onChange={(chosen) => {
          if (chosen === CUSTOM) setOpen(true);
          else change({ range: chosen, from: null, to: null });
        }}
      />
      <RangeDialog state={state} open={open} onClose={() => setOpen(false)} />
    </>
  );
}

function RangeDialog({ state, open, onClose }: { state: LogsState; open: boolean; onClose: () => void }) {
  const [from, setFrom] = useState("");
  const [to, setTo] = useState("");
  useEffect(() => {
    setFrom(fieldText(state.from));
    setTo(fieldText(state.to));
  }, [open]);
  const bad = from !== "" && to !== "" && new Date(from) >= new Date(to);
  return (
    <Dialog title="Lines from … to …" open={open} onClose={onClose}>
      <form
        class="logs-range"
        onSubmit={(event) => {
          event.preventDefault();
          if (bad) return;
          onClose();
          change({ range: null, from: secondsOf(from), to: secondsOf(to) });
        }}
      >
        <TextField label="From" type="datetime-local" step="1" value={from} onInput={setFrom} hint="Your own time zone; empty for the first line" />
        <TextField label="To" type="datetime-local" step="1" value={to} onInput={setTo} error={bad ? "Expected a later time than the first" : undefined} />
        <Button type="submit" kind="primary" disabled={bad}>
          Show these times
        </Button>
      </form>
    </Dialog>
  );
}

/** What was chosen elsewhere on the page, each with a way to drop it. */
function Chosen({ state, statement }: { state: LogsState; statement: string | undefined }) {
  const ranged = state.from !== null || state.to !== null;
  if (!ranged && state.where.length === 0 && state.statement === null) return null;
  return (
    <ul class="logs-chips" aria-label="What is chosen">
      {ranged && (
        <Chip text={rangeText(state)} label="Show all times" onDrop={() => change({ from: null, to: null })} />
      )}
      {state.where.map((test) => (
        <Chip
          key={testText(test)}
          tone={test.not ? "not" : undefined}
          text={`${test.name} ${test.not ? "≠" : "="} ${test.value}`}
          label={`Drop ${testText(test)}`}
          onDrop={() => setTest(state, test.name, test.value, null)}
        />
      ))}
      {state.statement !== null && (
        <Chip text={statement === undefined ? `statement ${state.statement}` : statement.replaceAll("<*>", "…")} label="Lines of all statements" onDrop={() => change({ statement: null })} />
      )}
      <li>
        <Button kind="quiet" small onClick={() => change({ from: null, to: null, where: null, statement: null })}>
          Clear
        </Button>
      </li>
    </ul>
  );
}

function Chip({ text, label, tone, onDrop }: { text: string; label: string; tone?: "not" | undefined; onDrop: () => void }) {
  return (
    <li class={tone === "not" ? "logs-chip not" : "logs-chip"}>
      <span>{text}</span>
      <button type="button" aria-label={label} title={label} onClick={onDrop}>
        <Icon name="close" size={13} />
      </button>
    </li>
  );
}

function rangeText(state: LogsState): string {
  const { from, to } = state;
  const step = from !== null && to !== null && to - from < 10 ? 0.001 : 1;
  if (from === null) return `until ${momentText(to ?? 0, step)}`;
  if (to === null) return `since ${momentText(from, step)}`;
  return `${momentText(from, step)} – ${momentText(to, step, from)}`;
}

function fieldText(at: number | null): string {
  if (at === null) return "";
  const local = new Date(at * 1000 - new Date(at * 1000).getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19);
}

function secondsOf(text: string): number | null {
  return text === "" ? null : new Date(text).getTime() / 1000;
}
