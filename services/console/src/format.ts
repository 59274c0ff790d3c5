/** Figures, bytes and times as people read them: with units, in the reader's own language. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** Return a count with separators: 12,345. */
export function count(value: number): string {
  return whole.format(value);
}

/** Return "1 document", "12,345 documents". */
export function plural(value: number, one: string, many = one + "s"): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Return a size in decimal units (SI): 999 B, 1.2 kB, 34 MB. */
export function bytes(value: number): string {
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 999.5 && unit < UNITS.length - 1) {
    size /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return `${size.toFixed(digits)} ${UNITS[unit]}`;
}

/** Return a share in [0, 1] as a percentage: 4.2 %. */
export function percent(share: number, digits = share < 0.1 && share > 0 ? 1 : 0): string {
  return `${(share * 100).toFixed(digits)} %`;
}

/** Return a score with the digits that tell two hits apart. */
export function score(value: number): string {
  return Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(3);
}

/** Return milliseconds as 0.4 ms, 38 ms, 1.20 s. */
export function milliseconds(value: number): string {
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ms`;
}

/** Return seconds as 4.1 s, 12 min, 3 h 20 min, 5 days. */
export function duration(seconds: number): string {
  if (seconds < 1) return milliseconds(seconds * 1000);
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.round(hours / 24)} days`;
}

/** Return a moment, Unix seconds or RFC 3339, as `2026-11-23 08:44:03` of the reader's zone. */
export function time(value: number | string | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const date = typeof value === "number" ? new Date(value * 1000) : new Date(value);
  if (Number.isNaN(date.getTime())) return String(value);
  const two = (part: number) => String(part).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Return how long ago a moment was: "just now", "12 min ago". */
export function ago(value: number | string | null | undefined, nowMs = Date.now()): string {
  if (value === null || value === undefined) return "never";
  const atMs = typeof value === "number" ? value * 1000 : new Date(value).getTime();
  const seconds = (nowMs - atMs) / 1000;
  return seconds < 2 ? "just now" : `${duration(seconds)} ago`;
}
