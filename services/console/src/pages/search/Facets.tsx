/** Values of metadata with how many documents have them; a click makes one a condition. */

import { useRef } from "preact/hooks";
import { ErrorState, Loading } from "../../components/States.js";
import { type Condition, conditionText, filterOf, includes, scalarsOf } from "../../filters.js";
import { count } from "../../format.js";
import { useRequest } from "../../request.js";
import { setQuery } from "../../router.js";
import type { CollectionInfo, Facets as FacetsAnswer, Hit } from "../../types.js";
import type { SearchState } from "./state.js";

const FIELDS = 5;
const VALUES = 6;

interface Props {
  collection: CollectionInfo;
  state: SearchState;
  hits: readonly Hit[];
}

/**
 * Each field that has a condition is counted without its own, so that its other values stay to be
 * chosen; all other fields are counted together.
 */
export function Facets({ collection, state, hits }: Props) {
  const fields = useFields(collection, hits);
  const held = fields.filter((field) => state.conditions.some((one) => one.field === field));
  const free = fields.filter((field) => !held.includes(field));
  const groups: (readonly string[])[] = [...held.map((field) => [field]), ...(free.length > 0 ? [free] : [])];
  return (
    <div class="facets">
      {groups.map((group) => (
        <Group key={group === free ? "" : group[0]} collection={collection} state={state} fields={group} order={fields} />
      ))}
    </div>
  );
}

interface GroupProps {
  collection: CollectionInfo;
  state: SearchState;
  fields: readonly string[];
  /** All fields, in the order in which they are shown. */
  order: readonly string[];
}

function Group({ collection, state, fields, order }: GroupProps) {
  const filter = filterOf(
    state.conditions.filter((one) => fields.length > 1 || one.field !== fields[0]),
    state.since,
    state.until,
  );
  const answer = useRequest<FacetsAnswer>({
    method: "POST",
    path: `/v1/collections/${collection.name}/facets`,
    body: { fields, limit: VALUES, ...(filter === undefined ? {} : { filter }) },
  });
  if (answer.problem) return <ErrorState problem={answer.problem} retry={answer.reload} />;
  if (answer.data === undefined) return <Loading lines={4} label="Counting values" />;
  return (
    <>
      {answer.data.facets
        .filter((facet) => facet.values.length > 0)
        .map((facet) => (
          <section key={facet.field} class="facet" style={{ order: order.indexOf(facet.field) }}>
            <h2>
              {facet.field} <span class="note">{count(facet.distinct)}</span>
            </h2>
            <ul>
              {facet.values.map(({ value, documents }) => {
                const one: Condition = { field: facet.field, value };
                return (
                  <li key={String(value)}>
                    <label>
                      <input
                        type="checkbox"
                        checked={includes(state.conditions, one)}
                        onChange={() => toggle(state.conditions, one)}
                      />
                      <span class="facet-value" title={String(value)}>
                        {String(value)}
                      </span>
                      <span class="facet-count">{count(documents)}</span>
                    </label>
                  </li>
                );
              })}
            </ul>
          </section>
        ))}
    </>
  );
}

/** Return the fields to count: those with an index, then those that hits have most often. */
function useFields(collection: CollectionInfo, hits: readonly Hit[]): string[] {
  const kept = useRef<{ collection: string; fields: string[] }>({ collection: "", fields: [] });
  const seen = new Map<string, Set<string>>();
  const often = new Map<string, number>();
  for (const { field, value } of hits.flatMap((hit) => scalarsOf(hit.metadata ?? {}))) {
    seen.set(field, (seen.get(field) ?? new Set()).add(String(value)));
    often.set(field, (often.get(field) ?? 0) + 1);
  }
  // a field that names each document alone narrows nothing
  const telling = [...often].filter(([field, times]) => times < 4 || (seen.get(field)?.size ?? 0) < times * 0.8);
  const found = [...Object.keys(collection.indexes), ...telling.sort((a, b) => b[1] - a[1]).map(([field]) => field)];
  // fields stay in their places while the next hits are on their way
  const before = kept.current.collection === collection.name ? kept.current.fields : [];
  kept.current = { collection: collection.name, fields: [...new Set([...before, ...found])].slice(0, FIELDS) };
  return kept.current.fields;
}

function toggle(conditions: readonly Condition[], one: Condition): void {
  const others = conditions.filter((other) => other.field !== one.field || other.value !== one.value);
  const next = others.length < conditions.length ? others : [...conditions, one];
  setQuery({ where: next.map(conditionText) });
}
