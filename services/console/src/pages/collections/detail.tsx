/** One collection: what it holds, what that takes, its settings, and files dropped into it. */

import { useState } from "preact/hooks";
import { call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Dialog } from "../../components/Dialog.js";
import { TextField } from "../../components/Field.js";
import { Badge, Card, Page, Stat, Stats } from "../../components/Layout.js";
import { ErrorState, Loading, MissingNotice, Notice } from "../../components/States.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { ago, bytes, count, percent, plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { Link, addressOf, navigate } from "../../router.js";
import { may } from "../../session.js";
import type { CollectionInfo } from "../../types.js";
import { BytesCard, CodecsCard, KeptCard } from "./BytesCard.js";
import { IngestCard } from "./IngestCard.js";
import { SettingsCard } from "./SettingsCard.js";
import { deleted, described } from "./requests.js";
import type { Described } from "./types.js";

const AT_REST_S = 15;
const AT_WORK_S = 2;

export function CollectionView({ name }: { name: string }) {
  const [working, setWorking] = useState(false);
  const answer = useRequest<Described>(described(name), { everyS: working ? AT_WORK_S : AT_REST_S });
  const found = answer.data;
  const unverified = found ? found.documents - found.verified : 0;
  if (working !== unverified > 0) setWorking(unverified > 0);
  return (
    <Page
      title={name}
      about={found ? <About found={found} /> : <>&nbsp;</>}
      actions={
        <>
          <Button kind="quiet" small icon="left" to={addressOf("collections")}>
            All collections
          </Button>
          <CodeSamples
            samples={[
              {
                title: "Describe the collection",
                request: described(name),
                python: `found = client.stats("${name}")\nprint(found.documents, found.verified, found.kept)`,
              },
            ]}
          />
          <Button icon={found?.kind === "logs" ? "logs" : "search"} to={addressOf(found?.kind === "logs" ? "logs" : "search", { collection: name })}>
            {found?.kind === "logs" ? "Read its logs" : "Search in it"}
          </Button>
          {found && !found.partitions && (
            <Button icon="map" to={addressOf("map", { collection: name })}>
              Map
            </Button>
          )}
        </>
      }
    >
      {content()}
    </Page>
  );

  function content() {
    if (answer.problem && !found) return <ErrorState problem={answer.problem} retry={answer.reload} />;
    if (!found) return <Card><Loading lines={6} /></Card>;
    return (
      <>
        <Card>
          <Figures found={found} />
        </Card>
        <MissingNotice names={found.missing_partitions} />
        {found.unreadable > 0 && (
          <Notice tone="bad">
            {plural(found.unreadable, "document")} cannot be read: their entries are damaged.{" "}
            <Link to={addressOf("map/health")}>See the scrub</Link>
          </Notice>
        )}
        {may("ingest") && <IngestCard collection={found as CollectionInfo & Described} onStored={answer.reload} />}
        <BytesCard found={found} />
        <div class="columns">
          <CodecsCard found={found} />
          <KeptCard found={found} />
        </div>
        {may("admin") && <SettingsCard found={found} onChanged={answer.reload} />}
        {may("admin") && <DeleteCard found={found} />}
      </>
    );
  }
}

function About({ found }: { found: Described }) {
  const words = [
    found.kind === "logs" ? "log lines" : "documents",
    `${found.precision} vectors of ${found.dim} dimensions`,
    found.search === "hybrid" ? "searched by meaning and words" : "searched by meaning",
    found.text_policy === "both" ? "texts kept too" : "texts dropped once verified",
    ...(found.partitions ? [`${plural(found.partitions, "partition")}${found.rollover ? " by time" : ""}`] : []),
  ];
  return (
    <>
      {words.join(" · ")}
      {found.created && <> · made {ago(found.created)}</>}
      {found.owner && <> · of <Badge>{found.owner}</Badge></>}
    </>
  );
}

function Figures({ found }: { found: Described }) {
  const isLog = found.kind === "logs";
  const share = found.documents > 0 ? found.verified / found.documents : 1;
  const waiting = found.documents - found.verified;
  const kept = found.kept ? found.kept.bytes_memory + (found.kept.bytes_disk ?? 0) : null;
  return (
    <Stats>
      <Stat label={isLog ? "Lines" : "Documents"} value={count(found.documents)} note={unitNote(found)} />
      <Stat
        label="Verified"
        value={found.documents === 0 ? "–" : share === 1 ? "all" : percent(Math.min(share, 0.999), 1)}
        tone={found.documents > 0 && share === 1 ? "good" : "neutral"}
        note={waiting > 0 ? `${count(waiting)} still have their text` : "read back, byte for byte"}
      />
      <Stat label="Text" value={bytes(found.bytes_text)} note={found.documents > 0 ? `${bytes(found.bytes_text / found.documents)} each` : "of what is there"} />
      <Stat label="Kept in all" value={kept === null ? "–" : bytes(kept)} note={found.kept?.bytes_disk ? "memory and disk" : "memory"} />
    </Stats>
  );
}

function unitNote(found: Described): string {
  if (found.kind !== "logs") return plural(found.chunks, "record");
  const lines = found.lines;
  return lines ? `${plural(lines.statements, "statement")}, ${plural(lines.streams, "stream")}` : "";
}

function DeleteCard({ found }: { found: Described }) {
  const [open, setOpen] = useState(false);
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const remove = async () => {
    setBusy(true);
    try {
      await call(deleted(found.name));
      toast(`The collection ${found.name} is deleted.`);
      navigate(addressOf("collections"));
    } catch (error) {
      toastProblem(error);
      setBusy(false);
    }
  };
  return (
    <Card>
      <div class="danger-row">
        <div>
          <h2>Delete this collection</h2>
          <p class="note">Its documents go with it, and nothing brings them back but a backup.</p>
        </div>
        <Button icon="trash" onClick={() => setOpen(true)}>
          Delete …
        </Button>
      </div>
      <Dialog
        title={`Delete ${found.name}?`}
        open={open}
        onClose={() => setOpen(false)}
        actions={
          <>
            <Button onClick={() => setOpen(false)}>Cancel</Button>
            <Button kind="danger" icon="trash" busy={busy} disabled={typed !== found.name} onClick={() => void remove()}>
              Delete it
            </Button>
          </>
        }
      >
        <p>
          {plural(found.documents, found.kind === "logs" ? "line" : "document")} of {bytes(found.bytes_text)} will be gone.
        </p>
        <TextField label={`Type ${found.name} to go on`} value={typed} spellcheck={false} autocomplete="off" onInput={setTyped} />
      </Dialog>
    </Card>
  );
}
