/** What is stored in place of the text: bytes of vector and patch beside those of the text. */

import { Card } from "../../components/Layout.js";
import { Parts } from "../../components/Meter.js";
import { bytes, count, percent } from "../../format.js";
import type { StoredRecords } from "../../types.js";

const SHOWN = 8;

export function Storage({ records }: { records: StoredRecords }) {
  const known = records.records;
  const patch = sum(known.map((record) => record.bytes_patch));
  const vector = sum(known.map((record) => record.bytes_vector));
  const text = sum(known.map((record) => record.bytes_text ?? 0));
  const codecs = [...new Set(known.map((record) => record.codec))];
  const note = known.length < records.chunks ? `first ${count(known.length)} of ${count(records.chunks)} parts` : undefined;
  return (
    <Card title="Stored as" note={note}>
      <Parts
        label="Bytes stored"
        total={Math.max(text, vector + patch)}
        parts={[
          { label: "vector", value: vector, text: bytes(vector), colour: 1 },
          { label: "patch", value: patch, text: bytes(patch), colour: 2 },
        ]}
      />
      <p class="storage-text">
        The text has <b>{bytes(text)}</b>; the patch alone takes {percent(text > 0 ? patch / text : 0)} of that.
        {vector + patch > text && <span class="storage-more"> With the vector, which a search needs, it takes more than the text.</span>}{" "}
        Codec: {codecs.join(", ")}.
      </p>
      {known.length > 1 && (
        <table class="table storage-parts">
          <caption class="visually-hidden">Parts of the document</caption>
          <thead>
            <tr>
              <th scope="col">Part</th>
              <th scope="col">Codec</th>
              <th scope="col" class="numeric">
                Text
              </th>
              <th scope="col" class="numeric">
                Patch
              </th>
            </tr>
          </thead>
          <tbody>
            {known.slice(0, SHOWN).map((record, index) => (
              <tr key={record.id}>
                <td>{index + 1}</td>
                <td>{record.codec}</td>
                <td class="numeric">{record.bytes_text == null ? "–" : bytes(record.bytes_text)}</td>
                <td class="numeric">{bytes(record.bytes_patch)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Card>
  );
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
