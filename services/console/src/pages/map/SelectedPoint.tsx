/** The selected point: its text, and where to go on from it. */

import { segment } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Card } from "../../components/Layout.js";
import { ErrorState, Loading } from "../../components/States.js";
import { plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf } from "../../router.js";
import type { CollectionInfo, Text } from "../../types.js";
import type { Projected } from "./types.js";

interface Props {
  found: Projected;
  selected: number | null;
  collection: CollectionInfo;
}

const SHOWN = 1200;
const QUERY = 160;

export function SelectedPoint({ found, selected, collection }: Props) {
  if (selected === null) {
    return (
      <Card title="Point">
        <p class="note">Choose a point to read its text. By keyboard: focus the map, then the arrow keys.</p>
      </Card>
    );
  }
  const id = found.ids[selected] ?? "";
  if (found.templates !== undefined && found.lines !== undefined && found.lines.length > 0) {
    return (
      <Card title="Statement" note={plural(found.lines[selected] ?? 0, "line")}>
        <div class="stack">
          <pre class="map-text">{found.templates[selected]}</pre>
          <div class="actions">
            <Button small icon="logs" to={addressOf("logs", { collection: collection.name, statement: id })}>
              Its lines
            </Button>
          </div>
        </div>
      </Card>
    );
  }
  return <SelectedRecord key={id} id={id} collection={collection.name} />;
}

function SelectedRecord({ id, collection }: { id: string; collection: string }) {
  const answer = useRequest<Text>({ method: "GET", path: `/v1/documents/${segment(id)}`, query: { collection } });
  const document = id.slice(0, id.lastIndexOf("#"));
  const text = answer.data?.text;
  return (
    <Card title={<span class="map-id">{id}</span>}>
      <div class="stack">
        {answer.problem ? (
          <ErrorState problem={answer.problem} />
        ) : !answer.data ? (
          <Loading lines={3} />
        ) : (
          <pre class="map-text">
            {text === null || text === undefined
              ? "This text is not UTF-8."
              : text.length > SHOWN
                ? `${text.slice(0, SHOWN)}…`
                : text}
          </pre>
        )}
        <div class="actions">
          <Button small icon="document" to={addressOf("documents", { collection, id: document })}>
            The document
          </Button>
          {text && (
            <Button small icon="search" to={addressOf("search", { collection, as: "search", q: shortened(text) })}>
              Search for it
            </Button>
          )}
        </div>
      </div>
    </Card>
  );
}

/** Return the beginning of a text as a query. */
function shortened(text: string): string {
  return text.replaceAll(/\s+/g, " ").trim().slice(0, QUERY);
}
