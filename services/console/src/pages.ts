/** The pages, in the order of the navigation. Each is loaded when it is first shown. */

import type { ComponentType } from "preact";
import type { IconName } from "./components/Icon.js";
import type { Scope } from "./session.js";

export interface PageEntry {
  /** Its path below `/console`. */
  name: string;
  title: string;
  icon: IconName;
  /** Key that leads there, after `g`. */
  key: string;
  group: "find" | "platform";
  /** The scope without which it shows nothing. */
  scope: Scope;
  load: () => Promise<{ default: ComponentType }>;
}

export const PAGES: readonly PageEntry[] = [
  {
    name: "search",
    title: "Search",
    icon: "search",
    key: "s",
    group: "find",
    scope: "read",
    load: () => import("./pages/search/page.js"),
  },
  {
    name: "documents",
    title: "Documents",
    icon: "document",
    key: "d",
    group: "find",
    scope: "read",
    load: () => import("./pages/document/page.js"),
  },
  {
    name: "logs",
    title: "Logs",
    icon: "logs",
    key: "l",
    group: "find",
    scope: "read",
    load: () => import("./pages/logs/page.js"),
  },
  {
    name: "collections",
    title: "Collections",
    icon: "collections",
    key: "c",
    group: "platform",
    scope: "read",
    load: () => import("./pages/collections/page.js"),
  },
  {
    name: "jobs",
    title: "Jobs",
    icon: "jobs",
    key: "j",
    group: "platform",
    scope: "read",
    load: () => import("./pages/jobs/page.js"),
  },
  {
    name: "models",
    title: "Models",
    icon: "models",
    key: "m",
    group: "platform",
    scope: "read",
    load: () => import("./pages/models/page.js"),
  },
  {
    name: "map",
    title: "Map and health",
    icon: "map",
    key: "h",
    group: "platform",
    scope: "read",
    load: () => import("./pages/map/page.js"),
  },
];
