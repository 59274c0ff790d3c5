/** The lines that are meant, page after page as one scrolls. */

import { Segmented } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { count, plural } from "../../format.js";
import { LineList } from "./LineList.js";
import { useLines } from "./lines.js";
import { type LogsState, change } from "./state.js";

interface Props {
  state: LogsState;
  /** Of `POST /v1/logs/query`. */
  body: Record<string, unknown>;
  /** How many lines there are, if nothing but labels and times chooses them. */
  total: number | undefined;
}

export function LinesView({ state, body, total }: Props) {
  const found = useLines(body);
  const { lines, complete, loading, problem } = found;
  const nearest = state.meaning && state.text !== "";
  const number = complete ? plural(lines.length, "line") : `${count(lines.length)}${total === undefined ? "" : ` of ${count(total)}`} lines read`;
  return (
    <Card
      flush
      title={nearest ? "Nearest statements first" : lines.length > 0 ? number : "Lines"}
      note={lines.length === 0 ? undefined : loading ? "reading …" : nearest ? number : undefined}
      actions={
        !nearest && (
          <Segmented
            label="Order"
            value={state.oldest ? "oldest" : "newest"}
            choices={[
              { value: "newest", label: "Newest first" },
              { value: "oldest", label: "Oldest first" },
            ]}
            onChange={(order) => change({ order: order === "oldest" ? order : null })}
          />
        )
      }
    >
      {problem && <ErrorState problem={problem} retry={found.reload} />}
      {!problem && lines.length === 0 && loading && (
        <div class="logs-wait">
          <Loading lines={8} label="Reading lines" />
        </div>
      )}
      {!problem && lines.length === 0 && complete && (
        <Empty icon="logs" title="No such lines">
          <p>No stored line passes what is chosen. Drop a label, look at all times, or look for fewer bytes.</p>
        </Empty>
      )}
      {lines.length > 0 && (
        <LineList
          label={`${count(lines.length)} lines of ${state.collection}`}
          lines={lines}
          contains={state.meaning ? "" : state.text}
          scores={nearest}
          {...(loading ? {} : { onEndReached: found.more })}
        />
      )}
    </Card>
  );
}
