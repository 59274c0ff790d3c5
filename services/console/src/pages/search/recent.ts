/** What was asked lately, kept in this browser only. */

import type { Way } from "./state.js";

export interface Asked {
  collection: string;
  way: Way;
  query: string;
}

const NAME = "verso-asked";
const KEPT = 5;

/** Return what was asked lately, the newest first. */
export function recent(): Asked[] {
  try {
    const found = JSON.parse(window.localStorage.getItem(NAME) ?? "[]") as unknown;
    return Array.isArray(found) ? (found as Asked[]).filter((one) => typeof one.query === "string") : [];
  } catch {
    return []; // storage may be forbidden
  }
}

/** Note a question. */
export function noteQuestion(collection: string, way: Way, query: string): void {
  if (query === "") return;
  const others = recent().filter((one) => one.query !== query || one.collection !== collection);
  try {
    window.localStorage.setItem(NAME, JSON.stringify([{ collection, way, query }, ...others].slice(0, KEPT)));
  } catch {
    // then it is not offered again
  }
}
