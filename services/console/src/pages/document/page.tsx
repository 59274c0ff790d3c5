/** Documents: a collection's list, or one document with its exact text and how it is stored. */

import { chosen, collectionsProblem, readCollections, useCollections } from "../../collections.js";
import { Button } from "../../components/Button.js";
import { Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { addressOf, place } from "../../router.js";
import { DocumentList } from "./DocumentList.js";
import { DocumentView } from "./DocumentView.js";

export default function DocumentsPage() {
  const found = useCollections();
  const query = place.value.query;
  const id = query.get("id");
  if (found === null) {
    const problem = collectionsProblem.value;
    return (
      <Page title="Documents">
        {problem ? <ErrorState problem={problem} retry={() => void readCollections()} /> : <Loading lines={4} />}
      </Page>
    );
  }
  const collection = chosen(query.get("collection"), found);
  if (collection === undefined) {
    return (
      <Page title="Documents">
        <Empty icon="collections" title={query.has("collection") ? `There is no collection “${query.get("collection")}”` : "There is no collection yet"}>
          <Button to={addressOf("search")}>Go to the search</Button>
        </Empty>
      </Page>
    );
  }
  if (id === null || id === "") return <DocumentList collection={collection} found={found} />;
  return <DocumentView key={`${collection.name}/${id}`} collection={collection} id={id} />;
}
