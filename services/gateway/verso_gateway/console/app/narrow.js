/** Whether the window is narrow, so that what stands beside goes above. */
import { signal } from "@preact/signals";
const query = window.matchMedia("(max-width: 1080px)");
export const narrow = signal(query.matches);
query.addEventListener("change", () => {
    narrow.value = query.matches;
});
