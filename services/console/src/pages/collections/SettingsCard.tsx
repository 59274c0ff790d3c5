/** What can change of a collection: how long it keeps documents, how it codes, whether it is fitted. */

import { useState } from "preact/hooks";
import { call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Select, Switch, TextField } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { bytes, percent } from "../../format.js";
import { POLICIES } from "./CreateDialog.js";
import { changed, fitted } from "./requests.js";
import type { Described } from "./types.js";

interface Fitted {
  generation?: string | null;
  chunks: number;
  before: number;
  after: number;
  bytes: number;
}

export function SettingsCard({ found, onChanged }: { found: Described; onChanged: () => void }) {
  const stored = { days: found.retention_days ? String(found.retention_days) : "", policy: found.codec_policy ?? "balanced" };
  const [days, setDays] = useState(stored.days);
  const [policy, setPolicy] = useState(stored.policy);
  const [autoFit, setAutoFit] = useState(found.auto_fit ?? true);
  const [busy, setBusy] = useState<"save" | "fit" | null>(null);
  const isLog = found.kind === "logs";
  const kept = isLog ? "lines" : "documents";
  const change: Record<string, unknown> = {};
  if (days !== stored.days) change["retention_days"] = days === "" ? null : Number(days);
  if (policy !== stored.policy) change["codec_policy"] = policy;
  if (autoFit !== (found.auto_fit ?? true)) change["auto_fit"] = autoFit;
  const isNew = Object.keys(change).length > 0;

  const run = async (what: "save" | "fit", work: () => Promise<string>) => {
    setBusy(what);
    try {
      toast(await work());
      onChanged();
    } catch (error) {
      toastProblem(error);
    }
    setBusy(null);
  };
  const save = () =>
    run("save", async () => {
      await call(changed(found.name, change));
      return "The settings are changed.";
    });
  const fit = () =>
    run("fit", async () => {
      const tables = await call<Fitted>(fitted(found.name));
      return tables.generation
        ? `Fitted: patches of held-out records take ${bytes(tables.after)} instead of ${bytes(tables.before)}, ${percent(1 - tables.after / tables.before)} less.`
        : "Fitted tables would not pay yet.";
    });

  return (
    <Card
      title="Settings"
      actions={
        <CodeSamples
          samples={[
            {
              title: `Keep ${kept} for thirty days`,
              request: changed(found.name, { retention_days: 30 }),
              python: `client.change_collection("${found.name}", retention_days=30)`,
            },
            { title: "Fit the codec now", request: fitted(found.name), python: `print(client.fit("${found.name}"))` },
          ]}
        />
      }
    >
      <form
        class="settings"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <TextField
          label="Days kept"
          type="number"
          min="0.01"
          step="any"
          placeholder="for good"
          value={days}
          hint={days === "" ? `${kept} stay until they are deleted` : `then ${kept} are deleted, by their time`}
          onInput={setDays}
        />
        {!isLog && (
          <Select
            label="Codec policy"
            value={policy}
            hint={`${POLICIES[policy]}; of new records`}
            choices={[
              { value: "smallest", label: "Smallest" },
              { value: "balanced", label: "Balanced" },
              { value: "fast", label: "Fast" },
            ]}
            onChange={setPolicy}
          />
        )}
        {!isLog && (
          <div class="settings-fit">
            <Switch label="Fit the codec to these texts by itself" checked={autoFit} onChange={setAutoFit} />
            <Button small busy={busy === "fit"} onClick={() => void fit()}>
              Fit now
            </Button>
          </div>
        )}
        <div class="actions">
          <Button kind="primary" type="submit" busy={busy === "save"} disabled={!isNew}>
            Save
          </Button>
        </div>
      </form>
    </Card>
  );
}
