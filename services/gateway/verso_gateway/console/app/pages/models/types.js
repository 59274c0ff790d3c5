/** What the API says of models, as far as this page reads it. */
/** Return the name that people read: versions of heads are hashes. */
export function shortVersion(version) {
    return version ? (/^[0-9a-f]{16}$/.test(version) ? version.slice(0, 8) : version) : "–";
}
/** Add up what all workers have counted of a canary; undefined where none has counted. */
export function trialOf(workers, head) {
    const own = workers
        .map((worker) => (head === null ? worker.artifact?.trial : worker.heads?.find((one) => one.name === head)?.trial))
        .filter((trial) => trial !== null && trial !== undefined);
    if (own.length === 0)
        return undefined;
    const sum = (pick) => own.reduce((total, trial) => total + (pick(trial) ?? 0), 0);
    return {
        passed: sum((one) => one.passed),
        failed: sum((one) => one.failed),
        agreed: sum((one) => one.agreed),
        differed: sum((one) => one.differed),
    };
}
const TASKS = { classify: "classifies", answer: "answers", score: "scores pairs" };
export function taskOf(head) {
    const version = head.stable ?? head.canary;
    return version?.task ? TASKS[version.task] : "–";
}
/** Return the one figure that says most of a head, with its name. */
export function headline(version) {
    const metrics = version?.metrics ?? {};
    const known = [
        ["accuracy", "accuracy", 1],
        ["eval_f1", "F1", 0.01],
        ["f1", "F1", 0.01],
        ["spearman", "Spearman", 1],
    ];
    for (const [key, name, scale] of known) {
        const value = metrics[key];
        if (value !== undefined)
            return { name, value: value * scale };
    }
    const [name, value] = Object.entries(metrics).find(([key]) => !key.includes("rows") && !key.includes("/")) ?? [];
    return name === undefined || value === undefined ? undefined : { name: name.replaceAll("_", " "), value: value > 1 ? value / 100 : value };
}
