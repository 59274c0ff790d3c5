/** What the decoder writes from a vector alone, beside the text with what the patch corrects. */

import { useState } from "preact/hooks";
import { segment } from "../../api.js";
import { Select } from "../../components/Field.js";
import { Highlight } from "../../components/Highlight.js";
import { Stat, Stats } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { bytes, percent } from "../../format.js";
import { useRequest } from "../../request.js";
import { type Span, utf16Offsets } from "../../text.js";
import type { Batch, CollectionInfo, StoredRecords, StoredText } from "../../types.js";

export function Draft({ records, collection }: { records: StoredRecords; collection: CollectionInfo }) {
  const [part, setPart] = useState(0);
  const name = records.records[part]?.id ?? records.id;
  const drafted = useRequest<StoredRecords>({
    method: "GET",
    path: `/v1/records/${segment(name)}`,
    query: { collection: collection.name, draft: true },
  });
  const text = useRequest<Batch<StoredText>>({
    method: "POST",
    path: "/v1/reconstruct",
    body: { collection: collection.name, ids: [name] },
  });
  const record = drafted.data?.records[0];
  const exact = text.data?.results[0]?.text;
  return (
    <div class="draft">
      {records.records.length > 1 && (
        <Select
          label="Part of the document"
          value={String(part)}
          choices={records.records.map((one, index) => ({ value: String(index), label: `${index + 1} (${one.codec})` }))}
          onChange={(value) => setPart(Number(value))}
        />
      )}
      {drafted.problem ? (
        <ErrorState problem={drafted.problem} retry={drafted.reload} />
      ) : drafted.loading || drafted.data === undefined || text.data === undefined ? (
        <Loading lines={5} label="The decoder writes" />
      ) : record?.draft == null || exact == null ? (
        <Empty icon="document" title="The decoder cannot read this part">
          <p>Its codec ({record?.codec}) stores the text without the decoder.</p>
        </Empty>
      ) : (
        <>
          <Stats>
            <Stat
              label="Word pieces guessed right"
              value={percent(record.draft.tokens > 0 ? record.draft.right / record.draft.tokens : 0)}
              note={`${record.draft.right} of ${record.draft.tokens}, each from those before it`}
            />
            <Stat label="Patch" value={bytes(record.bytes_patch)} note={`codec ${record.codec}`} />
            <Stat label="Text" value={bytes(record.bytes_text ?? 0)} note={`vector ${bytes(record.bytes_vector)}`} />
          </Stats>
          <div class="draft-columns">
            <section>
              <h2>From the vector alone</h2>
              <p class="note">A guess, never presented as the text.</p>
              <pre class="document-exact guess">{record.draft.guess}</pre>
            </section>
            <section>
              <h2>The exact text</h2>
              <p class="note">
                Marked: where the decoder would have written something else
                {record.codec === "neural"
                  ? ", and the patch corrects it."
                  : `. The codec ${record.codec} stores this text in fewer bytes than such corrections take.`}
              </p>
              <pre class="document-exact">
                <Highlight text={exact} spans={corrected(exact, record.draft.corrections ?? [])} />
              </pre>
            </section>
          </div>
        </>
      )}
    </div>
  );
}

function corrected(text: string, corrections: readonly { start?: number | null; end?: number | null }[]): Span[] {
  const points = corrections.flatMap((one) => [one.start ?? 0, one.end ?? 0]);
  const units = utf16Offsets(text, points);
  return corrections.map((_, index) => ({
    start: units[2 * index] ?? 0,
    end: units[2 * index + 1] ?? 0,
    kind: "corrected",
  }));
}
