/** Train a head on the labelled records of a collection or on a file of rows, and follow it. */

import { useState } from "preact/hooks";
import { type ApiRequest, call, problemFrom } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Chart, type Series } from "../../components/Chart.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Segmented, Select, Switch, TextField, Field } from "../../components/Field.js";
import { Badge, Card, Facts, Page } from "../../components/Layout.js";
import { Meter } from "../../components/Meter.js";
import { ErrorState, Notice } from "../../components/States.js";
import { useCollections } from "../../collections.js";
import { bytes, count, percent } from "../../format.js";
import { type Followed, type JobProgress, isOver, useJob } from "../../jobs.js";
import { useRequest } from "../../request.js";
import { Link, addressOf, place, setQuery } from "../../router.js";
import type { ItemError } from "../../types.js";
import { shortVersion } from "./types.js";

type Source = "collection" | "file";

interface Wanted {
  head: string;
  source: Source;
  collection: string;
  labelKey: string;
  textColumn: string;
  labelColumn: string;
  share: string;
  newLabels: boolean;
  licence: string;
}

const NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const START: Wanted = {
  head: "", source: "collection", collection: "", labelKey: "", textColumn: "text", labelColumn: "label",
  share: "10", newLabels: false, licence: "",
};

export function TrainingView() {
  const job = place.value.query.get("job");
  return (
    <Page
      title="Train a head"
      about="A head that classifies learns from labelled texts. It is published as a canary, and nothing else changes."
      actions={
        <Button kind="quiet" small icon="left" to={addressOf("models")}>
          All models
        </Button>
      }
    >
      {job === null ? <TrainingForm /> : <TrainingProgress key={job} jobId={job} />}
    </Page>
  );
}

function TrainingForm() {
  const [wanted, setWanted] = useState<Wanted>({ ...START, ...fromAddress() });
  const [file, setFile] = useState<File | null>(null);
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const collections = useCollections() ?? [];
  const set = (change: Partial<Wanted>) => setWanted((before) => ({ ...before, ...change }));
  const collection = wanted.collection || collections[0]?.name || "default";
  const request = requestOf({ ...wanted, collection }, file);
  const nameWrong = wanted.head !== "" && !NAME.test(wanted.head);
  const ready =
    NAME.test(wanted.head) && (wanted.source === "collection" ? wanted.labelKey !== "" : file !== null);

  const submit = async () => {
    setBusy(true);
    setError(undefined);
    try {
      const job = await call<{ id: string }>(request, { detached: true });
      setQuery({ job: job.id });
    } catch (failed) {
      setError(problemFrom(failed).detail);
      setBusy(false);
    }
  };

  return (
    <Card
      title="What it learns from"
      actions={<CodeSamples samples={[{ title: "Train a head", request, python: pythonOf(wanted, collection) }]} />}
    >
      <form
        class="training"
        onSubmit={(event) => {
          event.preventDefault();
          if (ready) void submit();
        }}
      >
        {error && <Notice tone="bad">{error}</Notice>}
        <Segmented
          label="Source"
          value={wanted.source}
          choices={[
            { value: "collection", label: "Records of a collection" },
            { value: "file", label: "A file of rows" },
          ]}
          onChange={(source) => set({ source })}
        />
        <div class="pair">
          <TextField
            label="Name of the head"
            value={wanted.head}
            placeholder="failures"
            spellcheck={false}
            autocomplete="off"
            required
            error={nameWrong ? "Small letters, digits, _ and -; the first is a letter or a digit." : undefined}
            hint="an existing one gets a new version"
            onInput={(head) => set({ head })}
          />
          <TextField label="Licence of the data" value={wanted.licence} placeholder="unknown" hint="shown in the head's report" onInput={(licence) => set({ licence })} />
          {wanted.source === "collection" ? (
            <>
              <Select
                label="Collection"
                value={collection}
                choices={collections.map((one) => ({ value: one.name, label: one.name }))}
                onChange={(name) => set({ collection: name })}
              />
              <TextField
                label="Metadata key with the label"
                value={wanted.labelKey}
                placeholder="kind"
                spellcheck={false}
                required
                hint="stored vectors are read; no text is decoded"
                onInput={(labelKey) => set({ labelKey })}
              />
            </>
          ) : (
            <>
              <Field label="Rows, as CSV or JSON lines" hint={file ? bytes(file.size) : "at most 64 MiB"}>
                {(attributes) => (
                  <input
                    {...attributes}
                    class="input"
                    type="file"
                    accept=".csv,.jsonl,.ndjson"
                    onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)}
                  />
                )}
              </Field>
              <div class="pair">
                <TextField label="Text column" value={wanted.textColumn} onInput={(textColumn) => set({ textColumn })} />
                <TextField label="Label column" value={wanted.labelColumn} onInput={(labelColumn) => set({ labelColumn })} />
              </div>
            </>
          )}
          <TextField
            label="Share of the canary, %"
            type="number"
            min="0"
            max="100"
            step="1"
            value={wanted.share}
            hint="part of the jobs that try the new version"
            onInput={(share) => set({ share })}
          />
        </div>
        <Switch label="The labels may differ from those of the stable version" checked={wanted.newLabels} onChange={(newLabels) => set({ newLabels })} />
        <div class="actions">
          <Button kind="primary" type="submit" icon="play" busy={busy} disabled={!ready}>
            Start the training
          </Button>
        </div>
      </form>
    </Card>
  );
}

function fromAddress(): Partial<Wanted> {
  const { query } = place.value;
  return { head: query.get("head") ?? "", collection: query.get("collection") ?? "" };
}

function requestOf(wanted: Wanted, file: File | null): ApiRequest {
  const more = {
    share: Math.min(1, Math.max(0, Number(wanted.share) / 100)),
    ...(wanted.newLabels ? { new_labels: true } : {}),
    ...(wanted.licence ? { licence: wanted.licence } : {}),
  };
  if (wanted.source === "collection") {
    const source = { collection: wanted.collection, label_key: wanted.labelKey };
    return { method: "POST", path: "/v1/train", body: { head: wanted.head, source, ...more } };
  }
  const type = file?.name.endsWith(".csv") ? "text/csv" : "application/x-ndjson";
  const query = { head: wanted.head, text_column: wanted.textColumn, label_column: wanted.labelColumn, settings: JSON.stringify(more) };
  return { method: "POST", path: "/v1/train", query, data: { content: file ?? "", type } };
}

function pythonOf(wanted: Wanted, collection: string): string {
  const about =
    wanted.source === "collection"
      ? `collection="${collection}", label_key="${wanted.labelKey || "kind"}"`
      : 'file=open("rows.csv", "rb").read(), media_type="text/csv"';
  return `from verso_client import Training\n\njob = client.train(Training("${wanted.head || "failures"}", ${about}))\nprint(client.wait(job.id).status)`;
}

interface TrainedJob {
  status: string;
  error?: ItemError | null;
  results?: (Trained | { error: ItemError })[];
}

interface Trained {
  head: string;
  version: string;
  labels: string[];
  rows: Record<string, number>;
  metrics: Record<string, number>;
  dropped_labels?: string[];
}

function TrainingProgress({ jobId }: { jobId: string }) {
  const followed = useJob(jobId);
  const job = useRequest<TrainedJob>({ method: "GET", path: `/v1/jobs/${jobId}` }, { waitS: 0, ...(followed.ended ? {} : { everyS: 3 }) });
  const status = followed.state?.status ?? job.data?.status;
  const over = status !== undefined && isOver(status as Parameters<typeof isOver>[0]);
  const [result] = job.data?.results ?? [];
  if (over && job.data && !isOver(job.data.status as Parameters<typeof isOver>[0]) && !job.loading) job.reload();
  if (job.problem && !job.data) return <ErrorState problem={job.problem} retry={job.reload} />;
  const fault = job.data?.error ?? (result && "error" in result ? result.error : undefined);
  return (
    <>
      <Card
        title="The training"
        note={<code>{jobId}</code>}
        actions={
          over ? (
            <Button small icon="plus" onClick={() => setQuery({ job: null })}>
              Another training
            </Button>
          ) : (
            <Button small to={addressOf(`jobs/${jobId}`)}>
              The job
            </Button>
          )
        }
      >
        <Stages followed={followed} status={status ?? "queued"} />
        {fault && <Notice tone="bad">{fault.detail} ({fault.code})</Notice>}
      </Card>
      <History progress={followed.progress} />
      {result && !("error" in result) && <TrainedCard result={result} />}
    </>
  );
}

function Stages({ followed, status }: { followed: Followed; status: string }) {
  const latest = followed.progress.at(-1);
  const share = status === "succeeded" ? 1 : (latest?.share ?? 0);
  return (
    <div class="stack" aria-live="polite">
      <p class="stage">
        <Badge tone={status === "succeeded" ? "good" : status === "failed" || status === "dead" ? "bad" : "accent"}>{status}</Badge>{" "}
        {status === "queued" ? "waits for the trainer" : (latest?.stage ?? "")}
        <b>{percent(share)}</b>
      </p>
      <Meter label="Training" value={share} tone={status === "succeeded" ? "good" : "accent"} text={percent(share)} />
    </div>
  );
}

/** The figures that the training told of, over the share of its work. */
function History({ progress }: { progress: readonly JobProgress[] }) {
  const told = progress.filter((one) => Object.keys(one.metrics ?? {}).length > 0 && one.share !== undefined);
  const names = [...new Set(told.flatMap((one) => Object.keys(one.metrics ?? {})))].filter((name) => /loss|error/.test(name)).slice(0, 4);
  if (told.length < 2 || names.length === 0) return null;
  const points = [...new Map(told.map((one) => [one.share ?? 0, one])).values()].sort((a, b) => (a.share ?? 0) - (b.share ?? 0));
  return (
    <Card title="Loss" note="it begins again for each penalty that is tried">
      <Chart
        label="The loss over the training"
        x={points.map((one) => (one.share ?? 0) * 100)}
        xLabel="part of the work, %"
        yLabel="loss"
        height={220}
        format={(value) => value.toFixed(2)}
        series={names.map(
          (name, index): Series => ({
            label: name.replaceAll("_", " "),
            colour: (index + 1) as Series["colour"],
            values: points.map((one) => one.metrics?.[name] ?? null),
          }),
        )}
      />
    </Card>
  );
}

function TrainedCard({ result }: { result: Trained }) {
  const accuracy = result.metrics["accuracy"];
  return (
    <Card
      title="It is a canary now"
      actions={
        <Button kind="primary" small to={addressOf(`models/heads/${result.head}`, { channel: "canary" })}>
          See its report
        </Button>
      }
    >
      <Facts
        facts={[
          ["Head", <Link key="h" to={addressOf(`models/heads/${result.head}`)}>{result.head}</Link>],
          ["Version", <code key="v">{shortVersion(result.version)}</code>],
          ["Labels", count(result.labels.length)],
          ["Rows", Object.entries(result.rows).map(([split, rows]) => `${count(Number(rows))} ${split}`).join(", ")],
          ["Accuracy", accuracy === undefined ? "–" : percent(accuracy, 1)],
          ...(result.dropped_labels?.length ? [["Dropped labels", result.dropped_labels.join(", ")] as const] : []),
        ]}
      />
    </Card>
  );
}
