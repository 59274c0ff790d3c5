/** Search and ask: one field; the answer stands above the passages it was read from. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { chosen, collectionsProblem, readCollections, remember, useCollections } from "../../collections.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Segmented, Select } from "../../components/Field.js";
import { Icon } from "../../components/Icon.js";
import { Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading, MissingNotice } from "../../components/States.js";
import { narrow } from "../../narrow.js";
import { useRequest } from "../../request.js";
import { setQuery } from "../../router.js";
import type { Answered, CollectionInfo, Found } from "../../types.js";
import { AnswerCard } from "./Answer.js";
import { Facets } from "./Facets.js";
import { Hits } from "./Hits.js";
import { Landing } from "./Landing.js";
import { Conditions, Options } from "./Options.js";
import { noteQuestion } from "./recent.js";
import { type SearchState, requestsOf, stateOf } from "./state.js";

export default function SearchPage() {
  const found = useCollections();
  const state = stateOf();
  if (found === null) {
    const problem = collectionsProblem.value;
    return (
      <Page title="Search" quiet>
        {problem ? <ErrorState problem={problem} retry={() => void readCollections()} /> : <Loading lines={4} />}
      </Page>
    );
  }
  const collection = chosen(state.collection, found);
  if (collection === undefined) return <NoCollection name={state.collection} found={found} />;
  return <Searching state={state} collection={collection} found={found} />;
}

function Searching({
  state,
  collection,
  found,
}: {
  state: SearchState;
  collection: CollectionInfo;
  found: readonly CollectionInfo[];
}) {
  const requests = requestsOf(state, collection);
  const hits = useRequest<Found>(requests?.search ?? null);
  const answer = useRequest<Answered>(requests?.answer ?? null);
  if (requests === null) {
    return (
      <Page title="Search" quiet>
        <div class="landing">
          <header class="landing-head">
            <p class="landing-title">{state.way === "ask" ? "What do you want to know?" : "What are you looking for?"}</p>
            <p class="about">
              {state.way === "ask"
                ? "An answer is a part of a stored text, shown in place. Where no text answers, the console says so."
                : "Passages by meaning and by words. Each text is rebuilt from its vector and patch, byte for byte."}
            </p>
          </header>
          <SearchField state={state} collection={collection} found={found} />
          <Landing collection={collection} found={found} />
        </div>
      </Page>
    );
  }
  return (
    <Page title={state.query} quiet>
      <SearchField state={state} collection={collection} found={found}>
        <CodeSamples samples={requests.samples} />
      </SearchField>
      <div class="search-columns">
        <div class="search-results">
          <MissingNotice names={hits.data?.missing_partitions} />
          {requests.answer !== null && <AnswerCard answer={answer} collection={collection} />}
          <Hits hits={hits} state={state} collection={collection} />
        </div>
        <aside class="search-side" aria-label="Narrow the search">
          <Conditions state={state} />
          <Side>
            <Options state={state} collection={collection} />
            {collection.kind === "documents" && <Facets collection={collection} state={state} hits={hits.data?.hits ?? []} />}
          </Side>
        </aside>
      </div>
    </Page>
  );
}

/** What narrows a search: beside the results, or folded above them. */
function Side({ children }: { children: ComponentChildren }) {
  if (!narrow.value) return <>{children}</>;
  return (
    <details>
      <summary>Narrow the search</summary>
      {children}
    </details>
  );
}

function SearchField({
  state,
  collection,
  found,
  children,
}: {
  state: SearchState;
  collection: CollectionInfo;
  found: readonly CollectionInfo[];
  children?: ComponentChildren;
}) {
  const [text, setText] = useState(state.query);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => setText(state.query), [state.query]);
  useEffect(() => {
    if (state.query === "") field.current?.focus();
  }, []);
  const submit = () => {
    noteQuestion(collection.name, state.way, text.trim());
    setQuery({ q: text.trim(), collection: collection.name });
  };
  return (
    <form
      class="search-form"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <div class="search-field">
        <Icon name="search" size={20} />
        <input
          ref={field}
          type="search"
          data-page-field
          aria-label={state.way === "ask" ? "Question" : "Search"}
          placeholder={state.way === "ask" ? "Ask a question" : "Search by meaning and by words"}
          autocomplete="off"
          spellcheck={false}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <Button kind="primary" type="submit">
          {state.way === "ask" ? "Ask" : "Search"}
        </Button>
      </div>
      <div class="search-with">
        <Segmented
          label="What to do with the words"
          value={state.way}
          choices={[
            { value: "ask", label: "Ask", title: "Read the nearest passages and answer from them" },
            { value: "search", label: "Search", title: "Find passages" },
          ]}
          onChange={(way) => setQuery({ as: way === "search" ? way : null })}
        />
        <span class="search-in">
          <span aria-hidden="true">in</span>
          <Select
            label="Collection"
            bare
            value={collection.name}
            choices={found.map((one) => ({ value: one.name, label: one.kind === "logs" ? `${one.name} (logs)` : one.name }))}
            onChange={(name) => {
              remember(name);
              setQuery({ collection: name, where: [] });
            }}
          />
        </span>
        {children && <span class="search-more">{children}</span>}
      </div>
    </form>
  );
}

function NoCollection({ name, found }: { name: string | null; found: readonly CollectionInfo[] }) {
  const first = found[0];
  return (
    <Page title="Search">
      {name === null || first === undefined ? (
        <Empty icon="collections" title="There is no collection yet">
          <p>A collection is made with its first documents:</p>
          <code>verso ingest FILE --collection notes</code>
        </Empty>
      ) : (
        <Empty icon="collections" title={`There is no collection “${name}”`}>
          <p>It was deleted, or your key does not see it.</p>
          <Button onClick={() => setQuery({ collection: first.name, where: [] })}>Search in {first.name}</Button>
        </Empty>
      )}
    </Page>
  );
}
