/** What stands below the field before anything is asked: what there is to ask. */

import { remember } from "../../collections.js";
import { Icon } from "../../components/Icon.js";
import { Key } from "../../components/Layout.js";
import { Notice } from "../../components/States.js";
import { bytes, count, percent } from "../../format.js";
import { useRequest } from "../../request.js";
import { Link, addressOf, setQuery } from "../../router.js";
import type { CollectionInfo, Statistics } from "../../types.js";
import { recent } from "./recent.js";

const SHOWN = 8;

export function Landing({ collection, found }: { collection: CollectionInfo; found: readonly CollectionInfo[] }) {
  const shown = [...found].sort((a, b) => Number(b.name === collection.name) - Number(a.name === collection.name));
  const names = new Set(found.map((one) => one.name));
  const asked = recent().filter((one) => names.has(one.collection));
  return (
    <>
      {asked.length > 0 && (
        <section class="landing-part">
          <h2>Asked before</h2>
          <ul class="landing-asked">
            {asked.map((one) => (
              <li key={`${one.collection} ${one.query}`}>
                <Link
                  data-result
                  to={addressOf("search", { q: one.query, collection: one.collection, as: one.way === "search" ? "search" : null })}
                >
                  <Icon name="clock" size={15} />
                  <span>{one.query}</span>
                  <small>{one.collection}</small>
                </Link>
              </li>
            ))}
          </ul>
        </section>
      )}
      <section class="landing-part">
        <h2>Collections</h2>
        <ul class="landing-collections">
          {shown.slice(0, SHOWN).map((one) => (
            <CollectionChoice key={one.name} collection={one} selected={one.name === collection.name} />
          ))}
        </ul>
      </section>
      <p class="landing-keys">
        <span>
          <Key>/</Key> to the field
        </span>
        <span>
          <Key>j</Key> <Key>k</Key> through results
        </span>
        <span>
          <Key>?</Key> all keys
        </span>
      </p>
    </>
  );
}

function CollectionChoice({ collection, selected }: { collection: CollectionInfo; selected: boolean }) {
  const { data, problem } = useRequest<Statistics>({ method: "GET", path: `/v1/collections/${collection.name}` });
  return (
    <li>
      <button
        type="button"
        class="choice"
        aria-pressed={selected}
        onClick={() => {
          remember(collection.name);
          setQuery({ collection: collection.name });
        }}
      >
        <span class="choice-name">{collection.name}</span>
        <span class="choice-kind">{collection.kind === "logs" ? "logs" : "documents"}</span>
        {data && <Kept collection={collection} statistics={data} />}
        {!data && !problem && <span class="choice-figures">&nbsp;</span>}
        {problem && <span class="choice-figures">{problem.detail}</span>}
      </button>
      {selected && data?.documents === 0 && <NothingStored collection={collection} />}
    </li>
  );
}

function Kept({ collection, statistics }: { collection: CollectionInfo; statistics: Statistics }) {
  if (statistics.documents === 0) return <span class="choice-figures">nothing stored yet</span>;
  const what = collection.kind === "logs" ? "line" : "document";
  const share = statistics.documents > 0 ? statistics.verified / statistics.documents : 0;
  return (
    <span class="choice-figures">
      <b>{count(statistics.documents)}</b> {statistics.documents === 1 ? what : `${what}s`} · {bytes(statistics.bytes_text)} of text
      {share >= 1 ? " · every text verified" : ` · ${percent(Math.floor(share * 100) / 100)} verified`}
    </span>
  );
}

function NothingStored({ collection }: { collection: CollectionInfo }) {
  return (
    <Notice>
      Send something: <code>verso ingest FILE --collection {collection.name}</code>. Or look at a sample corpus:{" "}
      <code>verso demo --stay</code>
    </Notice>
  );
}
