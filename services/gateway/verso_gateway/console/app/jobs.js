/** Follow a job by its events: its state and progress while it runs. */
import { useEffect, useState } from "preact/hooks";
const NOTHING = { state: undefined, progress: [], ended: false };
/** Return what a job says, as it says it; null follows nothing. */
export function useJob(jobId) {
    const [found, setFound] = useState(NOTHING);
    useEffect(() => {
        setFound(NOTHING);
        return jobId === null ? undefined : follow(jobId, setFound);
    }, [jobId]);
    return found;
}
/** Call back with every event of a job; return what ends that. A lost connection is made again. */
export function follow(jobId, onChange) {
    const source = new EventSource(`/v1/jobs/${encodeURIComponent(jobId)}/events`);
    let found = NOTHING;
    const take = (event) => {
        const state = JSON.parse(event.data);
        const progress = state.progress === undefined ? found.progress : [...found.progress, state.progress];
        found = { state, progress, ended: isOver(state.status) };
        onChange(found);
    };
    source.addEventListener("state", take);
    source.addEventListener("progress", take);
    source.addEventListener("end", () => {
        source.close();
        found = { ...found, ended: true };
        onChange(found);
    });
    return () => source.close();
}
/** Whether a job in this state has ended. */
export function isOver(status) {
    return status !== "queued" && status !== "running";
}
