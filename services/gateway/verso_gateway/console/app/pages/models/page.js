import { jsx as _jsx } from "preact/jsx-runtime";
/** *Models*: what the channels serve, the report of a head, a training. */
import { place } from "../../router.js";
import { HeadView } from "./head.js";
import { ModelsOverview } from "./overview.js";
import { TrainingView } from "./training.js";
export default function ModelsPage() {
    const [, what, name] = place.value.page.split("/");
    if (what === "train")
        return _jsx(TrainingView, {});
    if (what === "heads" && name !== undefined)
        return _jsx(HeadView, { name: decodeURIComponent(name) }, name);
    return _jsx(ModelsOverview, {});
}
