import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** One collection: what it holds, what that takes, its settings, and files dropped into it. */
import { useState } from "preact/hooks";
import { call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Dialog } from "../../components/Dialog.js";
import { TextField } from "../../components/Field.js";
import { Badge, Card, Page, Stat, Stats } from "../../components/Layout.js";
import { ErrorState, Loading, MissingNotice, Notice } from "../../components/States.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { ago, bytes, count, percent, plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { Link, addressOf, navigate } from "../../router.js";
import { may } from "../../session.js";
import { BytesCard, CodecsCard, KeptCard } from "./BytesCard.js";
import { IngestCard } from "./IngestCard.js";
import { SettingsCard } from "./SettingsCard.js";
import { deleted, described } from "./requests.js";
const AT_REST_S = 15;
const AT_WORK_S = 2;
export function CollectionView({ name }) {
    const [working, setWorking] = useState(false);
    const answer = useRequest(described(name), { everyS: working ? AT_WORK_S : AT_REST_S });
    const found = answer.data;
    const unverified = found ? found.documents - found.verified : 0;
    if (working !== unverified > 0)
        setWorking(unverified > 0);
    return (_jsx(Page, { title: name, about: found ? _jsx(About, { found: found }) : _jsx(_Fragment, { children: "\u00A0" }), actions: _jsxs(_Fragment, { children: [_jsx(Button, { kind: "quiet", small: true, icon: "left", to: addressOf("collections"), children: "All collections" }), _jsx(CodeSamples, { samples: [
                        {
                            title: "Describe the collection",
                            request: described(name),
                            python: `found = client.stats("${name}")\nprint(found.documents, found.verified, found.kept)`,
                        },
                    ] }), _jsx(Button, { icon: found?.kind === "logs" ? "logs" : "search", to: addressOf(found?.kind === "logs" ? "logs" : "search", { collection: name }), children: found?.kind === "logs" ? "Read its logs" : "Search in it" }), found && !found.partitions && (_jsx(Button, { icon: "map", to: addressOf("map", { collection: name }), children: "Map" }))] }), children: content() }));
    function content() {
        if (answer.problem && !found)
            return _jsx(ErrorState, { problem: answer.problem, retry: answer.reload });
        if (!found)
            return _jsx(Card, { children: _jsx(Loading, { lines: 6 }) });
        return (_jsxs(_Fragment, { children: [_jsx(Card, { children: _jsx(Figures, { found: found }) }), _jsx(MissingNotice, { names: found.missing_partitions }), found.unreadable > 0 && (_jsxs(Notice, { tone: "bad", children: [plural(found.unreadable, "document"), " cannot be read: their entries are damaged.", " ", _jsx(Link, { to: addressOf("map/health"), children: "See the scrub" })] })), may("ingest") && _jsx(IngestCard, { collection: found, onStored: answer.reload }), _jsx(BytesCard, { found: found }), _jsxs("div", { class: "columns", children: [_jsx(CodecsCard, { found: found }), _jsx(KeptCard, { found: found })] }), may("admin") && _jsx(SettingsCard, { found: found, onChanged: answer.reload }), may("admin") && _jsx(DeleteCard, { found: found })] }));
    }
}
function About({ found }) {
    const words = [
        found.kind === "logs" ? "log lines" : "documents",
        `${found.precision} vectors of ${found.dim} dimensions`,
        found.search === "hybrid" ? "searched by meaning and words" : "searched by meaning",
        found.text_policy === "both" ? "texts kept too" : "texts dropped once verified",
        ...(found.partitions ? [`${plural(found.partitions, "partition")}${found.rollover ? " by time" : ""}`] : []),
    ];
    return (_jsxs(_Fragment, { children: [words.join(" · "), found.created && _jsxs(_Fragment, { children: [" \u00B7 made ", ago(found.created)] }), found.owner && _jsxs(_Fragment, { children: [" \u00B7 of ", _jsx(Badge, { children: found.owner })] })] }));
}
function Figures({ found }) {
    const isLog = found.kind === "logs";
    const share = found.documents > 0 ? found.verified / found.documents : 1;
    const waiting = found.documents - found.verified;
    const kept = found.kept ? found.kept.bytes_memory + (found.kept.bytes_disk ?? 0) : null;
    return (_jsxs(Stats, { children: [_jsx(Stat, { label: isLog ? "Lines" : "Documents", value: count(found.documents), note: unitNote(found) }), _jsx(Stat, { label: "Verified", value: found.documents === 0 ? "–" : share === 1 ? "all" : percent(Math.min(share, 0.999), 1), tone: found.documents > 0 && share === 1 ? "good" : "neutral", note: waiting > 0 ? `${count(waiting)} still have their text` : "read back, byte for byte" }), _jsx(Stat, { label: "Text", value: bytes(found.bytes_text), note: found.documents > 0 ? `${bytes(found.bytes_text / found.documents)} each` : "of what is there" }), _jsx(Stat, { label: "Kept in all", value: kept === null ? "–" : bytes(kept), note: found.kept?.bytes_disk ? "memory and disk" : "memory" })] }));
}
function unitNote(found) {
    if (found.kind !== "logs")
        return plural(found.chunks, "record");
    const lines = found.lines;
    return lines ? `${plural(lines.statements, "statement")}, ${plural(lines.streams, "stream")}` : "";
}
function DeleteCard({ found }) {
    const [open, setOpen] = useState(false);
    const [typed, setTyped] = useState("");
    const [busy, setBusy] = useState(false);
    const remove = async () => {
        setBusy(true);
        try {
            await call(deleted(found.name));
            toast(`The collection ${found.name} is deleted.`);
            navigate(addressOf("collections"));
        }
        catch (error) {
            toastProblem(error);
            setBusy(false);
        }
    };
    return (_jsxs(Card, { children: [_jsxs("div", { class: "danger-row", children: [_jsxs("div", { children: [_jsx("h2", { children: "Delete this collection" }), _jsx("p", { class: "note", children: "Its documents go with it, and nothing brings them back but a backup." })] }), _jsx(Button, { icon: "trash", onClick: () => setOpen(true), children: "Delete \u2026" })] }), _jsxs(Dialog, { title: `Delete ${found.name}?`, open: open, onClose: () => setOpen(false), actions: _jsxs(_Fragment, { children: [_jsx(Button, { onClick: () => setOpen(false), children: "Cancel" }), _jsx(Button, { kind: "danger", icon: "trash", busy: busy, disabled: typed !== found.name, onClick: () => void remove(), children: "Delete it" })] }), children: [_jsxs("p", { children: [plural(found.documents, found.kind === "logs" ? "line" : "document"), " of ", bytes(found.bytes_text), " will be gone."] }), _jsx(TextField, { label: `Type ${found.name} to go on`, value: typed, spellcheck: false, autocomplete: "off", onInput: setTyped })] })] }));
}
