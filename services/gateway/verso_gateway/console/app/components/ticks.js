/** Round numbers and round times for axes. Times are Unix seconds, shown in the reader's zone. */
const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const STEPS_S = [
    ...[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 15, 30],
    ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
    ...[1, 2, 3, 6, 12].map((n) => n * HOUR),
    ...[1, 2, 7, 14, 30, 90, 365, 1825, 3650].map((n) => n * DAY),
];
/** Return round counts from 0 to at least a value, some three or four steps apart. */
export function countTicks(most) {
    const rough = most / 3;
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
    const step = Math.max(1, [1, 2, 5, 10].map((n) => n * power).find((one) => one >= rough) ?? 10 * power);
    const ticks = [];
    for (let tick = 0; tick < most + step; tick += step)
        ticks.push(tick);
    return ticks;
}
/** Return at most so many round times within a range. */
export function timeTicks(from, to, most) {
    const span = to - from;
    if (!(span > 0))
        return [];
    const step = STEPS_S.find((one) => span / one <= most) ?? span;
    // Round in the reader's own zone: midnight is where the reader has it.
    const zone = new Date(from * 1000).getTimezoneOffset() * MINUTE;
    const ticks = [];
    for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) {
        const share = (at - from) / span;
        if (share > 0.03 && share < 0.97)
            ticks.push({ at, text: tickText(at, step) });
    }
    return ticks;
}
/** Return a moment as exactly as intervals of some length need it; the day only if it is another. */
export function momentText(at, intervalS, since) {
    const day = dayText(at);
    const clock = clockText(at, intervalS);
    if (intervalS >= DAY)
        return day;
    return since !== undefined && dayText(since) === day ? clock : `${day} ${clock}`;
}
/** Return the time of a line, RFC 3339, in the reader's zone, to the millisecond. */
export function lineTime(value) {
    const date = new Date(value ?? Number.NaN);
    if (Number.isNaN(date.getTime()))
        return { day: "", clock: "–" };
    return { day: dayText(date.getTime() / 1000), clock: clockText(date.getTime() / 1000, 0) };
}
function tickText(at, step) {
    const date = new Date(at * 1000);
    if (step >= 365 * DAY)
        return String(date.getFullYear());
    const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    if (step >= 30 * DAY)
        return `${date.getFullYear()}-${two(date.getMonth() + 1)}`;
    if (step >= DAY || (date.getHours() === 0 && date.getMinutes() === 0 && step >= MINUTE))
        return day;
    return clockText(at, step);
}
function dayText(at) {
    const date = new Date(at * 1000);
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}
function clockText(at, step) {
    const date = new Date(at * 1000);
    const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
    if (step >= MINUTE)
        return minutes;
    const seconds = `${minutes}:${two(date.getSeconds())}`;
    return step >= 1 ? seconds : `${seconds}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
function two(part) {
    return String(part).padStart(2, "0");
}
