/** Whether the window is as narrow as a telephone. */
import { useEffect, useState } from "preact/hooks";
const query = window.matchMedia("(max-width: 700px)");
export function useNarrow() {
    const [narrow, setNarrow] = useState(query.matches);
    useEffect(() => {
        const listen = () => setNarrow(query.matches);
        query.addEventListener("change", listen);
        return () => query.removeEventListener("change", listen);
    }, []);
    return narrow;
}
