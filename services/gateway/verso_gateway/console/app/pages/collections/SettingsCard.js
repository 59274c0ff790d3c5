import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** What can change of a collection: how long it keeps documents, how it codes, whether it is fitted. */
import { useState } from "preact/hooks";
import { call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { CodeSamples } from "../../components/CodeSamples.js";
import { Select, Switch, TextField } from "../../components/Field.js";
import { Card } from "../../components/Layout.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { bytes, percent } from "../../format.js";
import { POLICIES } from "./CreateDialog.js";
import { changed, fitted } from "./requests.js";
export function SettingsCard({ found, onChanged }) {
    const stored = { days: found.retention_days ? String(found.retention_days) : "", policy: found.codec_policy ?? "balanced" };
    const [days, setDays] = useState(stored.days);
    const [policy, setPolicy] = useState(stored.policy);
    const [autoFit, setAutoFit] = useState(found.auto_fit ?? true);
    const [busy, setBusy] = useState(null);
    const isLog = found.kind === "logs";
    const kept = isLog ? "lines" : "documents";
    const change = {};
    if (days !== stored.days)
        change["retention_days"] = days === "" ? null : Number(days);
    if (policy !== stored.policy)
        change["codec_policy"] = policy;
    if (autoFit !== (found.auto_fit ?? true))
        change["auto_fit"] = autoFit;
    const isNew = Object.keys(change).length > 0;
    const run = async (what, work) => {
        setBusy(what);
        try {
            toast(await work());
            onChanged();
        }
        catch (error) {
            toastProblem(error);
        }
        setBusy(null);
    };
    const save = () => run("save", async () => {
        await call(changed(found.name, change));
        return "The settings are changed.";
    });
    const fit = () => run("fit", async () => {
        const tables = await call(fitted(found.name));
        return tables.generation
            ? `Fitted: patches of held-out records take ${bytes(tables.after)} instead of ${bytes(tables.before)}, ${percent(1 - tables.after / tables.before)} less.`
            : "Fitted tables would not pay yet.";
    });
    return (_jsx(Card, { title: "Settings", actions: _jsx(CodeSamples, { samples: [
                {
                    title: `Keep ${kept} for thirty days`,
                    request: changed(found.name, { retention_days: 30 }),
                    python: `client.change_collection("${found.name}", retention_days=30)`,
                },
                { title: "Fit the codec now", request: fitted(found.name), python: `print(client.fit("${found.name}"))` },
            ] }), children: _jsxs("form", { class: "settings", onSubmit: (event) => {
                event.preventDefault();
                void save();
            }, children: [_jsx(TextField, { label: "Days kept", type: "number", min: "0.01", step: "any", placeholder: "for good", value: days, hint: days === "" ? `${kept} stay until they are deleted` : `then ${kept} are deleted, by their time`, onInput: setDays }), !isLog && (_jsx(Select, { label: "Codec policy", value: policy, hint: `${POLICIES[policy]}; of new records`, choices: [
                        { value: "smallest", label: "Smallest" },
                        { value: "balanced", label: "Balanced" },
                        { value: "fast", label: "Fast" },
                    ], onChange: setPolicy })), !isLog && (_jsxs("div", { class: "settings-fit", children: [_jsx(Switch, { label: "Fit the codec to these texts by itself", checked: autoFit, onChange: setAutoFit }), _jsx(Button, { small: true, busy: busy === "fit", onClick: () => void fit(), children: "Fit now" })] })), _jsx("div", { class: "actions", children: _jsx(Button, { kind: "primary", type: "submit", busy: busy === "save", disabled: !isNew, children: "Save" }) })] }) }));
}
