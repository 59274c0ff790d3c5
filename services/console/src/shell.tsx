/** What surrounds every page: navigation, theme, session, messages, keys of the keyboard. */

import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { connection } from "./api.js";
import { Button } from "./components/Button.js";
import { Dialog } from "./components/Dialog.js";
import { Icon, type IconName } from "./components/Icon.js";
import { Key } from "./components/Layout.js";
import { Empty, ErrorState, Loading, NoPermission } from "./components/States.js";
import { Toasts } from "./components/Toast.js";
import { PAGES, type PageEntry } from "./pages.js";
import { Link, addressOf, navigate, place } from "./router.js";
import { caller, callerProblem, identify, may, signOut, signedOut } from "./session.js";
import { SignIn } from "./signin.js";
import { type Theme, theme } from "./theme.js";

const helpOpen = signal(false);
const menuOpen = signal(false);
const loaded = new Map<string, ComponentType>();

export function Shell() {
  useEffect(listenForKeys, []);
  if (signedOut.value) return <SignIn />;
  return (
    <div class="shell">
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <Rail />
      <main id="content" tabIndex={-1}>
        {connection.value === "lost" && (
          <div class="connection" role="status">
            <span class="spinner" aria-hidden="true" /> The platform does not answer. Trying again …
          </div>
        )}
        <CurrentPage />
      </main>
      <Toasts />
      <Shortcuts />
    </div>
  );
}

function Rail() {
  const current = place.value.page.split("/")[0];
  const entry = PAGES.find((page) => page.name === current);
  return (
    <header class={menuOpen.value ? "rail open" : "rail"}>
      <div class="rail-top">
        <Link to={addressOf("search")} class="brand" aria-label="Verso, search">
          <svg width="24" height="24" viewBox="0 0 32 32" aria-hidden="true">
            <rect width="32" height="32" rx="7" class="brand-field" />
            <path d="M8 8l8 17 8-17M13.2 8h5.6" class="brand-mark" />
          </svg>
          <span>Verso</span>
        </Link>
        <span class="rail-current">{entry?.title}</span>
        <span class="rail-toggle">
          <Button
            kind="quiet"
            icon={menuOpen.value ? "close" : "menu"}
            label="Menu"
            expanded={menuOpen.value}
            onClick={() => {
              menuOpen.value = !menuOpen.value;
            }}
          />
        </span>
      </div>
      <nav class="rail-nav" aria-label="Pages">
        <NavGroup title="Find" pages={PAGES.filter((page) => page.group === "find")} current={current} />
        <NavGroup title="Platform" pages={PAGES.filter((page) => page.group === "platform")} current={current} />
      </nav>
      <div class="rail-foot">
        <ThemeChoice />
        <button type="button" class="rail-item" onClick={() => (helpOpen.value = true)}>
          <Icon name="keyboard" />
          <span>Keyboard</span>
        </button>
        <a class="rail-item" href="/openapi.json" target="_blank" rel="noreferrer">
          <Icon name="code" />
          <span>API description</span>
        </a>
        {caller.value?.keys && (
          <div class="rail-caller">
            <Icon name="user" />
            <span>
              <b>{caller.value.name}</b>
              <small>{caller.value.scopes.join(", ")}</small>
            </span>
            <Button kind="quiet" small onClick={() => void signOut()}>
              Sign out
            </Button>
          </div>
        )}
      </div>
    </header>
  );
}

function NavGroup({ title, pages, current }: { title: string; pages: readonly PageEntry[]; current: string | undefined }) {
  if (pages.length === 0) return null;
  return (
    <div class="rail-group">
      <p class="rail-heading">{title}</p>
      <ul>
        {pages.map((page) => (
          <li key={page.name}>
            <Link
              to={addressOf(page.name)}
              class="rail-item"
              aria-current={page.name === current ? "page" : undefined}
              onClick={() => {
                menuOpen.value = false;
              }}
            >
              <Icon name={page.icon} />
              <span>{page.title}</span>
              {caller.value !== null && !may(page.scope) && <Icon name="lock" size={14} />}
            </Link>
          </li>
        ))}
      </ul>
    </div>
  );
}

const THEMES: readonly { value: Theme; label: string; icon: IconName }[] = [
  { value: "system", label: "System colours", icon: "system" },
  { value: "light", label: "Light", icon: "sun" },
  { value: "dark", label: "Dark", icon: "moon" },
];

function ThemeChoice() {
  return (
    <fieldset class="themes">
      <legend class="visually-hidden">Colours</legend>
      {THEMES.map((one) => (
        <label key={one.value} title={one.label}>
          <input
            type="radio"
            name="theme"
            value={one.value}
            checked={theme.value === one.value}
            onChange={() => {
              theme.value = one.value;
            }}
          />
          <Icon name={one.icon} size={16} />
          <span class="visually-hidden">{one.label}</span>
        </label>
      ))}
    </fieldset>
  );
}

function CurrentPage() {
  const name = place.value.page.split("/")[0];
  const entry = PAGES.find((page) => page.name === name);
  const [, setReady] = useState(0);
  const [failed, setFailed] = useState<string | null>(null);
  const known = entry && loaded.get(entry.name);

  useEffect(() => {
    if (entry === undefined || known !== undefined) return;
    setFailed(null);
    entry
      .load()
      .then((module) => {
        loaded.set(entry.name, module.default);
        setReady((before) => before + 1);
      })
      .catch(() => setFailed(entry.name)); // a newer gateway has no file of this version
  }, [entry?.name]);

  if (entry === undefined) {
    return (
      <div class="page">
        <h1 class="visually-hidden">Not found</h1>
        <Empty icon="search" title="There is no such page">
          <Button to={addressOf("search")}>Go to the search</Button>
        </Empty>
      </div>
    );
  }
  if (caller.value !== null && !may(entry.scope)) {
    return (
      <div class="page">
        <h1 class="visually-hidden">{entry.title}</h1>
        <NoPermission scope={entry.scope} />
      </div>
    );
  }
  if (failed === entry.name) {
    return (
      <div class="page">
        <h1 class="visually-hidden">{entry.title}</h1>
        <Empty icon="refresh" title="This page could not be loaded">
          <p>The platform may have been updated since the console was opened.</p>
          <Button icon="refresh" onClick={() => window.location.reload()}>
            Load the console again
          </Button>
        </Empty>
      </div>
    );
  }
  if (callerProblem.value !== null) {
    return (
      <div class="page">
        <h1 class="visually-hidden">{entry.title}</h1>
        <ErrorState problem={callerProblem.value} retry={() => void identify()} />
      </div>
    );
  }
  if (known === undefined || caller.value === null) {
    return (
      <div class="page">
        <Loading lines={4} />
      </div>
    );
  }
  const View = known;
  return <View />;
}

function Shortcuts() {
  return (
    <Dialog
      title="Keyboard"
      open={helpOpen.value}
      onClose={() => {
        helpOpen.value = false;
      }}
    >
      <dl class="shortcuts">
        <div>
          <dt>
            <Key>/</Key>
          </dt>
          <dd>to the field of the page</dd>
        </div>
        <div>
          <dt>
            <Key>j</Key> <Key>k</Key>
          </dt>
          <dd>to the next, the previous result</dd>
        </div>
        <div>
          <dt>
            <Key>Enter</Key>
          </dt>
          <dd>open what is focused</dd>
        </div>
        {PAGES.map((page) => (
          <div key={page.name}>
            <dt>
              <Key>g</Key> <Key>{page.key}</Key>
            </dt>
            <dd>{page.title}</dd>
          </div>
        ))}
        <div>
          <dt>
            <Key>?</Key>
          </dt>
          <dd>this list</dd>
        </div>
      </dl>
    </Dialog>
  );
}

const SEQUENCE_MS = 1200;

/** Listen for the keys that hold everywhere. A page marks its field and results by data attributes. */
function listenForKeys(): () => void {
  let goAtMs = Number.NEGATIVE_INFINITY;
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]") !== null) return;
    const now = performance.now();
    const going = now - goAtMs < SEQUENCE_MS;
    goAtMs = event.key === "g" && !going ? now : Number.NEGATIVE_INFINITY;
    const entry = going ? PAGES.find((page) => page.key === event.key) : undefined;
    if (entry !== undefined) navigate(addressOf(entry.name));
    else if (event.key === "/") focusOn("[data-page-field]");
    else if (event.key === "?") helpOpen.value = true;
    else if (event.key === "j") moveResult(1);
    else if (event.key === "k") moveResult(-1);
    else return;
    event.preventDefault();
  };
  window.addEventListener("keydown", onKey);
  return () => window.removeEventListener("keydown", onKey);
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !["radio", "checkbox", "button"].includes(target.type);
  return target.isContentEditable || ["TEXTAREA", "SELECT"].includes(target.tagName);
}

function focusOn(selector: string): void {
  const field = document.querySelector<HTMLInputElement>(selector);
  field?.focus();
  field?.select?.();
}

function moveResult(step: number): void {
  const results = [...document.querySelectorAll<HTMLElement>("[data-result]")];
  const at = results.findIndex((result) => result === document.activeElement);
  const next = at === -1 ? (step > 0 ? 0 : results.length - 1) : Math.max(0, Math.min(results.length - 1, at + step));
  results[next]?.focus();
  results[next]?.scrollIntoView({ block: "nearest" });
}
