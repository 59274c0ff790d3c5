/** Where a platform uses API keys: exchange one for a session. */

import { useState } from "preact/hooks";
import { problemFrom } from "./api.js";
import { Button } from "./components/Button.js";
import { TextField } from "./components/Field.js";
import { signIn } from "./session.js";

export function SignIn() {
  const [key, setKey] = useState("");
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  document.title = "Sign in · Verso";
  const submit = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await signIn(key.trim());
    } catch (failed) {
      setError(problemFrom(failed).detail);
      setBusy(false);
    }
  };
  return (
    <main class="signin">
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <svg width="40" height="40" viewBox="0 0 32 32" aria-hidden="true">
          <rect width="32" height="32" rx="7" class="brand-field" />
          <path d="M8 8l8 17 8-17M13.2 8h5.6" class="brand-mark" />
        </svg>
        <h1>Sign in to Verso</h1>
        <p>This platform uses API keys. The key is exchanged for a session and not kept in the browser.</p>
        <TextField
          label="API key"
          type="password"
          autocomplete="current-password"
          placeholder="vk_…"
          value={key}
          error={error}
          required
          onInput={setKey}
        />
        <Button kind="primary" type="submit" busy={busy}>
          Sign in
        </Button>
        <p class="hint">
          The platform's operator makes keys: <code>verso keys new NAME</code>
        </p>
      </form>
    </main>
  );
}
