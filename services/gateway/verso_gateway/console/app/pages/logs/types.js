/** Answers of the API that the logs page reads. */
/** Return the class that colours a level; undefined of a word that is none. */
export function levelTone(value) {
    return value === null || value === undefined ? undefined : LEVELS.get(value.toLowerCase());
}
const LEVELS = new Map(Object.entries({
    "level-fatal": ["fatal", "critical", "crit", "emergency", "emerg", "alert", "panic"],
    "level-error": ["error", "err", "severe"],
    "level-warning": ["warning", "warn"],
    "level-info": ["info", "informational", "information", "notice"],
    "level-debug": ["debug", "trace", "verbose", "fine"],
}).flatMap(([tone, words]) => words.map((word) => [word, tone])));
