import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** Promote a canary, or go back: each says first what it will do. */
import { useState } from "preact/hooks";
import { call } from "../../api.js";
import { Button } from "../../components/Button.js";
import { Dialog } from "../../components/Dialog.js";
import { toast, toastProblem } from "../../components/Toast.js";
import { may } from "../../session.js";
import { promotion, rollback } from "./requests.js";
import { shortVersion } from "./types.js";
export function ReleaseButtons({ head, rollout, onChanged, small = true }) {
    const [asked, setAsked] = useState(null);
    const [busy, setBusy] = useState(false);
    if (!may("admin"))
        return null;
    const { canary, previous, stable } = rollout;
    const subject = head === null ? "the artifact" : head;
    const act = async () => {
        setBusy(true);
        try {
            await call(asked === "promote" ? promotion(head) : rollback(head));
            toast(asked === "promote" ? `${shortVersion(canary)} of ${subject} is stable now.` : `${subject} is rolled back.`);
            setAsked(null);
            onChanged();
        }
        catch (error) {
            toastProblem(error);
        }
        setBusy(false);
    };
    return (_jsxs("span", { class: "actions", children: [canary && (_jsx(Button, { small: small, kind: "primary", icon: "up", onClick: () => setAsked("promote"), children: "Promote" })), (canary || previous) && (_jsx(Button, { small: small, icon: "left", onClick: () => setAsked("rollback"), children: canary ? "Withdraw" : "Roll back" })), _jsx(Dialog, { title: asked === "promote" ? `Promote the canary of ${subject}?` : canary ? `Withdraw the canary of ${subject}?` : `Roll ${subject} back?`, open: asked !== null, onClose: () => setAsked(null), actions: _jsxs(_Fragment, { children: [_jsx(Button, { onClick: () => setAsked(null), children: "Cancel" }), _jsx(Button, { kind: "primary", busy: busy, onClick: () => void act(), children: asked === "promote" ? "Make it stable" : canary ? "Withdraw it" : "Roll back" })] }), children: asked === "promote" ? (_jsxs("p", { children: ["All jobs will use ", _jsx("code", { children: shortVersion(canary) }), " within a second or two; ", _jsx("code", { children: shortVersion(stable) }), " stays there to go back to."] })) : canary ? (_jsxs("p", { children: ["No job will use ", _jsx("code", { children: shortVersion(canary) }), " any more; ", _jsx("code", { children: shortVersion(stable) }), " serves all of them."] })) : (_jsxs("p", { children: ["All jobs will use ", _jsx("code", { children: shortVersion(previous) }), " again instead of ", _jsx("code", { children: shortVersion(stable) }), "."] })) })] }));
}
