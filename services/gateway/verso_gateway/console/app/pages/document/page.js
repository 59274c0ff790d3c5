import { jsx as _jsx } from "preact/jsx-runtime";
/** Documents: a collection's list, or one document with its exact text and how it is stored. */
import { chosen, collectionsProblem, readCollections, useCollections } from "../../collections.js";
import { Button } from "../../components/Button.js";
import { Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading } from "../../components/States.js";
import { addressOf, place } from "../../router.js";
import { DocumentList } from "./DocumentList.js";
import { DocumentView } from "./DocumentView.js";
export default function DocumentsPage() {
    const found = useCollections();
    const query = place.value.query;
    const id = query.get("id");
    if (found === null) {
        const problem = collectionsProblem.value;
        return (_jsx(Page, { title: "Documents", children: problem ? _jsx(ErrorState, { problem: problem, retry: () => void readCollections() }) : _jsx(Loading, { lines: 4 }) }));
    }
    const collection = chosen(query.get("collection"), found);
    if (collection === undefined) {
        return (_jsx(Page, { title: "Documents", children: _jsx(Empty, { icon: "collections", title: query.has("collection") ? `There is no collection “${query.get("collection")}”` : "There is no collection yet", children: _jsx(Button, { to: addressOf("search"), children: "Go to the search" }) }) }));
    }
    if (id === null || id === "")
        return _jsx(DocumentList, { collection: collection, found: found });
    return _jsx(DocumentView, { collection: collection, id: id }, `${collection.name}/${id}`);
}
