/** What the search page is asked for: its address, and the requests that follow from it. */

import type { ApiRequest } from "../../api.js";
import type { Sample } from "../../components/CodeSamples.js";
import { keywords, python } from "../../components/CodeSamples.js";
import { type Condition, conditionsOf, filterOf } from "../../filters.js";
import { place } from "../../router.js";
import type { CollectionInfo, Filter } from "../../types.js";

export type Way = "ask" | "search";
export type Mode = "default" | "hybrid" | "dense" | "sparse";

export interface SearchState {
  query: string;
  way: Way;
  collection: string | null;
  mode: Mode;
  rerank: boolean;
  limit: number;
  conditions: Condition[];
  since: string;
  until: string;
}

const MODES: readonly Mode[] = ["hybrid", "dense", "sparse"];
const READ = 5;

/** Return what the address asks for. */
export function stateOf(): SearchState {
  const query = place.value.query;
  const mode = query.get("mode") as Mode;
  return {
    query: query.get("q") ?? "",
    way: query.get("as") === "search" ? "search" : "ask",
    collection: query.get("collection"),
    mode: MODES.includes(mode) ? mode : "default",
    rerank: query.get("rerank") === "true",
    limit: Math.max(1, Math.min(100, Number(query.get("limit")) || 10)),
    conditions: conditionsOf(query.getAll("where")),
    since: query.get("since") ?? "",
    until: query.get("until") ?? "",
  };
}

export interface Requests {
  search: ApiRequest;
  answer: ApiRequest | null;
  filter: Filter | undefined;
  samples: Sample[];
}

/** Return the requests of a state, null where nothing is asked. */
export function requestsOf(state: SearchState, collection: CollectionInfo): Requests | null {
  const query = state.query.trim();
  if (query === "") return null;
  const filter = filterOf(state.conditions, state.since, state.until);
  const options = {
    limit: state.limit,
    ...(state.mode === "default" ? {} : { mode: state.mode }),
    ...(filter === undefined ? {} : { filter }),
    ...(state.rerank ? { rerank: "pairs" } : {}),
    explain: true,
  };
  const search: ApiRequest = {
    method: "POST",
    path: "/v1/search",
    body: { collection: collection.name, query, ...options },
  };
  const asked = { collection: collection.name, limit: READ, top_k: 3, ...(filter === undefined ? {} : { filter }) };
  const answer: ApiRequest | null =
    state.way === "ask"
      ? { method: "POST", path: "/v1/answer", body: { question: query, ...asked } }
      : null;
  const samples: Sample[] = [
    {
      title: "Search",
      request: search,
      python: `found = client.search(${python(query)}${keywords({ collection: collection.name, ...options })})\nfor hit in found.hits:\n    print(hit.score, hit.id, hit.text)`,
    },
  ];
  if (answer !== null) {
    samples.unshift({
      title: "Answer",
      request: answer,
      python: `found = client.answer(${python(query)}${keywords(asked)})\nif found.answered:\n    print(found.answers[0].text)`,
    });
  }
  return { search, answer, filter, samples };
}
