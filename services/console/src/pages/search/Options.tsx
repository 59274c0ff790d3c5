/** How a search is done: what is compared, reranking, time, and the conditions that hold. */

import { Select, Switch, TextField } from "../../components/Field.js";
import { Icon } from "../../components/Icon.js";
import { conditionText } from "../../filters.js";
import { setQuery } from "../../router.js";
import type { CollectionInfo } from "../../types.js";
import type { Mode, SearchState } from "./state.js";

export function Options({ state, collection }: { state: SearchState; collection: CollectionInfo }) {
  const hybrid = collection.search === "hybrid" && collection.kind === "documents";
  const modes: { value: Mode; label: string }[] = [
    { value: "default", label: hybrid ? "Meaning and words" : "Meaning" },
    ...(hybrid
      ? [
          { value: "dense" as const, label: "Meaning alone (vectors)" },
          { value: "sparse" as const, label: "Words alone (BM25)" },
        ]
      : []),
  ];
  return (
    <div class="side-block">
      {hybrid && (
        <Select
          label="Compare by"
          value={state.mode === "hybrid" ? "default" : state.mode}
          choices={modes}
          onChange={(mode) => setQuery({ mode: mode === "default" ? null : mode })}
        />
      )}
      <Select
        label="Passages"
        value={String(state.limit)}
        choices={["5", "10", "25", "50"].map((value) => ({ value, label: value }))}
        onChange={(limit) => setQuery({ limit: limit === "10" ? null : limit })}
      />
      <Switch
        label="Read and reorder (slower)"
        checked={state.rerank}
        onChange={(rerank) => setQuery({ rerank })}
      />
      <details class="side-times" open={state.since !== "" || state.until !== ""}>
        <summary>Time</summary>
        <TextField label="From" type="datetime-local" value={state.since} onInput={(since) => setQuery({ since }, { replace: true })} />
        <TextField label="Until" type="datetime-local" value={state.until} onInput={(until) => setQuery({ until }, { replace: true })} />
      </details>
    </div>
  );
}

/** The conditions that hold; a click removes one. */
export function Conditions({ state }: { state: SearchState }) {
  if (state.conditions.length === 0) return null;
  return (
    <ul class="chips" aria-label="Conditions that hold">
      {state.conditions.map((condition) => (
        <li key={conditionText(condition)}>
          <button
            type="button"
            class="chip on"
            title="Remove this condition"
            onClick={() => setQuery({ where: state.conditions.filter((one) => one !== condition).map(conditionText) })}
          >
            <span class="chip-field">{condition.field}</span> {String(condition.value)}
            <Icon name="close" size={12} />
          </button>
        </li>
      ))}
    </ul>
  );
}
