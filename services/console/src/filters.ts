/** Conditions on metadata and time, as the address of a page holds them. */

import type { Filter, Metadata, Scalar } from "./types.js";

export interface Condition {
  field: string;
  value: Scalar;
}

/** Return a condition as it stands in an address: `host:"a"`. */
export function conditionText(condition: Condition): string {
  return `${condition.field}:${JSON.stringify(condition.value)}`;
}

/** Return the conditions of an address; what cannot be read is left out. */
export function conditionsOf(texts: readonly string[]): Condition[] {
  const found: Condition[] = [];
  for (const text of texts) {
    const colon = text.search(/:(?="|-?\d|true$|false$)/);
    if (colon < 1) continue;
    try {
      found.push({ field: text.slice(0, colon), value: JSON.parse(text.slice(colon + 1)) as Scalar });
    } catch {
      // an address may be cut or mistyped
    }
  }
  return found;
}

/** Return the filter of some conditions: values of one field are alternatives. */
export function filterOf(conditions: readonly Condition[], since?: string, until?: string): Filter | undefined {
  const byField = new Map<string, Scalar[]>();
  for (const { field, value } of conditions) byField.set(field, [...(byField.get(field) ?? []), value]);
  const leaves: Filter[] = [...byField].map(([field, values]) =>
    values.length === 1 ? { field, eq: values[0] } : { field, in: values },
  );
  if (since || until) {
    leaves.push({ field: "time", ...(since ? { gte: moment(since) } : {}), ...(until ? { lt: moment(until) } : {}) });
  }
  if (leaves.length === 0) return undefined;
  return leaves.length === 1 ? leaves[0] : { and: leaves };
}

/** Return a time of a form field, in the reader's zone, as RFC 3339. */
function moment(value: string): string {
  const date = new Date(value);
  return Number.isNaN(date.getTime()) ? value : date.toISOString();
}

/** Return the scalar values of metadata, nested keys joined by dots, as filters name them. */
export function scalarsOf(metadata: Metadata, prefix = ""): Condition[] {
  return Object.entries(metadata).flatMap(([key, value]) => {
    const field = prefix + key;
    if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return [{ field, value }];
    if (Array.isArray(value)) {
      return value.filter((one) => ["string", "number", "boolean"].includes(typeof one)).map((one) => ({ field, value: one as Scalar }));
    }
    return value !== null && typeof value === "object" ? scalarsOf(value as Metadata, `${field}.`) : [];
  });
}

/** Whether a filter's condition is among others. */
export function includes(conditions: readonly Condition[], one: Condition): boolean {
  return conditions.some((other) => other.field === one.field && other.value === one.value);
}
