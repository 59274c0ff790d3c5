/** Light, dark, or as the system says; kept in this browser. */

import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const NAME = "verso-theme";

function stored(): Theme {
  try {
    const value = window.localStorage.getItem(NAME);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system"; // storage may be forbidden
  }
}

export const theme = signal<Theme>(stored());

/** Whether the page is dark now. Charts need it: a canvas knows no CSS variables. */
export const dark = signal(false);

const system = window.matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", () => {
  systemDark.value = system.matches;
});

effect(() => {
  const chosen = theme.value;
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
  dark.value = chosen === "dark" || (chosen === "system" && systemDark.value);
  try {
    if (chosen === "system") window.localStorage.removeItem(NAME);
    else window.localStorage.setItem(NAME, chosen);
  } catch {
    // then it lasts as long as the page
  }
});
