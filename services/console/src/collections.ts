/** The collections that the caller sees, read once and when a page asks for it. */

import { useEffect } from "preact/hooks";
import { signal } from "@preact/signals";
import { type Problem, call, problemFrom, reconnected } from "./api.js";
import type { CollectionInfo, CollectionList } from "./types.js";

export const collections = signal<readonly CollectionInfo[] | null>(null);
export const collectionsProblem = signal<Problem | null>(null);

/** Read the collections again. */
export async function readCollections(): Promise<void> {
  try {
    const found = await call<CollectionList>({ method: "GET", path: "/v1/collections" });
    collections.value = found.collections;
    collectionsProblem.value = null;
  } catch (error) {
    collectionsProblem.value = problemFrom(error);
  }
}

/** Read the collections when a page is shown. */
export function useCollections(): readonly CollectionInfo[] | null {
  const back = reconnected.value;
  useEffect(() => void readCollections(), [back]);
  return collections.value;
}

const LAST = "verso-collection";

/** Return the collection of an address: the named one, which is the last one used from then on; else that, else the first. */
export function chosen(name: string | null, among: readonly CollectionInfo[]): CollectionInfo | undefined {
  if (name !== null) {
    const named = among.find((one) => one.name === name);
    if (named !== undefined) remember(name);
    return named;
  }
  let last: string | null = null;
  try {
    last = window.localStorage.getItem(LAST);
  } catch {
    // storage may be forbidden
  }
  return among.find((one) => one.name === last) ?? among.find((one) => one.name !== "default") ?? among[0];
}

/** Note the collection that the reader chose. */
export function remember(name: string): void {
  try {
    window.localStorage.setItem(LAST, name);
  } catch {
    // then the first one is offered again
  }
}
