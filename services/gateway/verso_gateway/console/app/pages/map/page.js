import { jsx as _jsx } from "preact/jsx-runtime";
/** *Map and health*: where the vectors of a collection lie; whether the platform does its work. */
import { Page } from "../../components/Layout.js";
import { Segmented } from "../../components/Field.js";
import { addressOf, navigate, place } from "../../router.js";
import { HealthView } from "./health.js";
import { MapView } from "./map.js";
export default function MapPage() {
    const health = place.value.page.split("/")[1] === "health";
    return (_jsx(Page, { title: health ? "Health" : "Map", about: health
            ? "Whether work gets done, what waits, and whether all that is stored still reads back."
            : "The vectors of a sample, drawn where they differ most. Near points mean alike texts.", wide: !health, actions: _jsx(Segmented, { label: "What is shown", value: health ? "health" : "map", choices: [
                { value: "map", label: "Map" },
                { value: "health", label: "Health" },
            ], onChange: (value) => navigate(addressOf(value === "health" ? "map/health" : "map")) }), children: health ? _jsx(HealthView, {}) : _jsx(MapView, {}) }));
}
