/** Make a collection. Most settings cannot be changed later, so each says what it decides. */

import { useState } from "preact/hooks";
import { call, problemFrom } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Dialog } from "../../components/Dialog.js";
import { Select, TextField } from "../../components/Field.js";
import { Notice } from "../../components/States.js";
import { toast } from "../../components/Toast.js";
import { addressOf, navigate } from "../../router.js";
import { created } from "./requests.js";
import type { NewCollection } from "./types.js";

const START: NewCollection = {
  name: "",
  kind: "documents",
  precision: "int4",
  search: "hybrid",
  codec_policy: "balanced",
  text_policy: "patch",
};
const NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;

export function CreateDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  const [wanted, setWanted] = useState(START);
  const [days, setDays] = useState("");
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const set = (change: Partial<NewCollection>) => setWanted((before) => ({ ...before, ...change }));
  const isLog = wanted.kind === "logs";
  const nameWrong = wanted.name !== "" && !NAME.test(wanted.name);

  const submit = async () => {
    setBusy(true);
    setError(undefined);
    const retained = Number(days);
    try {
      await call(created({ ...wanted, ...(isLog ? { text_policy: "patch" } : {}), ...(days === "" ? {} : { retention_days: retained }) }));
      toast(`The collection ${wanted.name} is made.`);
      setWanted(START);
      setDays("");
      navigate(addressOf(`collections/${wanted.name}`));
    } catch (failed) {
      setError(problemFrom(failed).detail);
    }
    setBusy(false);
  };

  return (
    <Dialog
      title="New collection"
      open={open}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" busy={busy} disabled={wanted.name === "" || nameWrong} onClick={() => void submit()}>
            Make it
          </Button>
        </>
      }
    >
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (wanted.name !== "" && !nameWrong) void submit();
        }}
      >
        {error && <Notice tone="bad">{error}</Notice>}
        <TextField
          label="Name"
          value={wanted.name}
          placeholder="incidents"
          spellcheck={false}
          autocomplete="off"
          required
          error={nameWrong ? "Small letters, digits, _ and -; the first is a letter or a digit." : undefined}
          onInput={(name) => set({ name })}
        />
        <div class="pair">
          <Select
            label="Kind"
            value={wanted.kind}
            hint={isLog ? "lines of one statement share a vector" : "each text has vectors of its own"}
            choices={[
              { value: "documents", label: "Documents" },
              { value: "logs", label: "Log lines" },
            ]}
            onChange={(kind) => set({ kind })}
          />
          <Select
            label="Search"
            value={wanted.search}
            hint={wanted.search === "hybrid" ? "by meaning and by words" : "by meaning alone; fewer bytes"}
            choices={[
              { value: "hybrid", label: "Hybrid" },
              { value: "dense", label: "Dense" },
            ]}
            onChange={(search) => set({ search })}
          />
          <Select
            label="Precision of vectors"
            value={wanted.precision}
            hint={PRECISIONS[wanted.precision]}
            choices={[
              { value: "float16", label: "float16" },
              { value: "int8", label: "int8" },
              { value: "int4", label: "int4" },
            ]}
            onChange={(precision) => set({ precision })}
          />
          <Select
            label="Codec policy"
            value={wanted.codec_policy}
            hint={POLICIES[wanted.codec_policy]}
            choices={[
              { value: "smallest", label: "Smallest" },
              { value: "balanced", label: "Balanced" },
              { value: "fast", label: "Fast" },
            ]}
            onChange={(codec_policy) => set({ codec_policy })}
          />
          <Select
            label="Texts"
            value={isLog ? "patch" : wanted.text_policy}
            disabled={isLog}
            hint={wanted.text_policy === "both" ? "kept beside the patches" : "dropped once verified"}
            choices={[
              { value: "patch", label: "Patches only" },
              { value: "both", label: "Keep texts too" },
            ]}
            onChange={(text_policy) => set({ text_policy })}
          />
          <TextField label="Days kept" type="number" min="0.01" step="any" value={days} placeholder="for good" hint="by each document's time" onInput={setDays} />
        </div>
        <button type="submit" hidden />
      </form>
    </Dialog>
  );
}

const PRECISIONS = {
  float16: "2 bytes a dimension",
  int8: "1 byte a dimension",
  int4: "half a byte; finds as much",
};

export const POLICIES = {
  smallest: "fewest bytes, slowest reads",
  balanced: "weighs bytes against reads",
  fast: "read fastest, more bytes",
};
