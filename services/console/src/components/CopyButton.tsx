import { useState } from "preact/hooks";
import { Button } from "./Button.js";

/** Copy a text, and say so. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await copyText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return <Button kind="quiet" small icon={done ? "check" : "copy"} label={done ? "Copied" : label} onClick={() => void copy()} />;
}

/** Copy to the clipboard, which pages without TLS have on loopback only. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
