import { jsx as _jsx } from "preact/jsx-runtime";
/** *Collections*: all of them, or one. */
import { place } from "../../router.js";
import { CollectionList } from "./list.js";
import { CollectionView } from "./detail.js";
export default function CollectionsPage() {
    const [, name] = place.value.page.split("/");
    return name === undefined ? _jsx(CollectionList, {}) : _jsx(CollectionView, { name: decodeURIComponent(name) }, name);
}
