/** Promote a canary, or go back: each says first what it will do. */

import { useState } from "preact/hooks";
import { call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Dialog } from "../../components/Dialog.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { may } from "../../session.js";
import { promotion, rollback } from "./requests.js";
import { type Rollout, shortVersion } from "./types.js";

interface Props {
  /** Null is the artifact. */
  head: string | null;
  rollout: Rollout;
  onChanged: () => void;
  small?: boolean;
}

export function ReleaseButtons({ head, rollout, onChanged, small = true }: Props) {
  const [asked, setAsked] = useState<"promote" | "rollback" | null>(null);
  const [busy, setBusy] = useState(false);
  if (!may("admin")) return null;
  const { canary, previous, stable } = rollout;
  const subject = head === null ? "the artifact" : head;

  const act = async () => {
    setBusy(true);
    try {
      await call(asked === "promote" ? promotion(head) : rollback(head));
      toast(asked === "promote" ? `${shortVersion(canary)} of ${subject} is stable now.` : `${subject} is rolled back.`);
      setAsked(null);
      onChanged();
    } catch (error) {
      toastProblem(error);
    }
    setBusy(false);
  };

  return (
    <span class="actions">
      {canary && (
        <Button small={small} kind="primary" icon="up" onClick={() => setAsked("promote")}>
          Promote
        </Button>
      )}
      {(canary || previous) && (
        <Button small={small} icon="left" onClick={() => setAsked("rollback")}>
          {canary ? "Withdraw" : "Roll back"}
        </Button>
      )}
      <Dialog
        title={asked === "promote" ? `Promote the canary of ${subject}?` : canary ? `Withdraw the canary of ${subject}?` : `Roll ${subject} back?`}
        open={asked !== null}
        onClose={() => setAsked(null)}
        actions={
          <>
            <Button onClick={() => setAsked(null)}>Cancel</Button>
            <Button kind="primary" busy={busy} onClick={() => void act()}>
              {asked === "promote" ? "Make it stable" : canary ? "Withdraw it" : "Roll back"}
            </Button>
          </>
        }
      >
        {asked === "promote" ? (
          <p>
            All jobs will use <code>{shortVersion(canary)}</code> within a second or two; <code>{shortVersion(stable)}</code> stays
            there to go back to.
          </p>
        ) : canary ? (
          <p>
            No job will use <code>{shortVersion(canary)}</code> any more; <code>{shortVersion(stable)}</code> serves all of them.
          </p>
        ) : (
          <p>
            All jobs will use <code>{shortVersion(previous)}</code> again instead of <code>{shortVersion(stable)}</code>.
          </p>
        )}
      </Dialog>
    </span>
  );
}
