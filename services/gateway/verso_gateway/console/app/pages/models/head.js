import { Fragment as _Fragment, jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
/** One head: its channels, its report in figures, and how its canary does. */
import { CodeSamples } from "../../components/CodeSamples.js";
import { Button } from "../../components/Button.js";
import { Segmented } from "../../components/Field.js";
import { Badge, Card, Facts, Page } from "../../components/Layout.js";
import { Empty, ErrorState, Loading, Notice } from "../../components/States.js";
import { ago, count, plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { addressOf, place, setQuery } from "../../router.js";
import { AcceptedCard, AgreementCard, CalibrationCard, MetricsCard, RiskCard } from "./figures.js";
import { ChannelBox, compared, history } from "./overview.js";
import { ReleaseButtons } from "./Release.js";
import { REGISTRY, promotion, report } from "./requests.js";
import { taskOf } from "./types.js";
const EVERY_S = 5;
export function HeadView({ name }) {
    const info = useRequest({ method: "GET", path: `/v1/heads/${name}` }, { everyS: EVERY_S });
    const registry = useRequest(REGISTRY, { everyS: EVERY_S });
    const head = info.data;
    const asked = place.value.query.get("channel");
    const channel = asked === "canary" && head?.canary ? "canary" : head && !head.stable ? "canary" : "stable";
    const version = head?.[channel];
    const rollout = registry.data?.heads[name];
    const reload = () => {
        info.reload();
        registry.reload();
    };
    return (_jsx(Page, { title: name, about: head ? `A head that ${taskOf(head)}${version?.reads ? `, reading ${version.reads.replace("_", " of ")}` : ""}.` : _jsx(_Fragment, { children: "\u00A0" }), actions: _jsxs(_Fragment, { children: [_jsx(Button, { kind: "quiet", small: true, icon: "left", to: addressOf("models"), children: "All models" }), _jsx(CodeSamples, { samples: [
                        {
                            title: "The report, with its figures",
                            request: report(name, channel),
                            python: `print(client.head_report("${name}"))`,
                        },
                        { title: "Promote the canary", request: promotion(name), python: `client.promote("${name}")` },
                    ] })] }), children: content() }));
    function content() {
        if (info.problem && !head)
            return _jsx(ErrorState, { problem: info.problem, retry: info.reload });
        if (!head)
            return _jsx(Card, { children: _jsx(Loading, { lines: 6 }) });
        return (_jsxs(_Fragment, { children: [_jsx(Card, { title: "Channels", actions: rollout && _jsx(ReleaseButtons, { head: name, rollout: rollout, onChanged: reload }), children: _jsxs("div", { class: "channels", children: [_jsx(ChannelBox, { name: "stable", version: head.stable?.version, share: head.canary ? 1 - head.share : 1 }), _jsx(ChannelBox, { name: "canary", version: head.canary?.version, share: head.canary ? head.share : 0, note: rollout && (compared(rollout).slice(3) || undefined) }), _jsx("div", { class: "channel", children: rollout && _jsx(Facts, { facts: history(rollout) }) })] }) }), head.canary && _jsx(AgreementCard, { workers: registry.data?.workers ?? [], head: name, share: head.share }), head.stable && head.canary && (_jsx(Segmented, { label: "Report of", value: channel, choices: [
                        { value: "stable", label: "Report of the stable version" },
                        { value: "canary", label: "Report of the canary" },
                    ], onChange: (value) => setQuery({ channel: value === "canary" ? value : null }, { replace: true }) })), version?.error && (_jsxs(Notice, { tone: "bad", children: ["Not served: ", version.error.detail, " (", version.error.code, ")"] })), version && !version.error && _jsx(Report, { name: name, channel: channel, version: version })] }));
    }
}
function Report({ name, channel, version }) {
    const answer = useRequest(report(name, channel));
    const figures = answer.data?.figures;
    if (answer.problem)
        return _jsx(ErrorState, { problem: answer.problem, retry: answer.reload });
    if (!answer.data)
        return _jsx(Card, { children: _jsx(Loading, { lines: 8 }) });
    const classifies = version.task === "classify";
    const measured = (figures?.calibration ?? []).length > 0;
    return (_jsxs(_Fragment, { children: [figures && classifies && (_jsxs(_Fragment, { children: [_jsxs("div", { class: "columns", children: [_jsx(RiskCard, { figures: figures }), measured ? _jsx(CalibrationCard, { figures: figures }) : _jsx(AcceptedCard, { figures: figures })] }), measured && _jsx(AcceptedCard, { figures: figures })] })), figures && !classifies && _jsx(MetricsCard, { figures: figures }), !figures && (_jsx(Empty, { icon: "info", title: "This worker gives no figures", children: _jsx("p", { children: "Its report is below; figures come with the next version of the workers." }) })), _jsxs("div", { class: "columns", children: [_jsx(AboutCard, { version: version }), _jsx(Card, { title: "The report as published", children: _jsxs("details", { class: "report", children: [_jsxs("summary", { children: ["Markdown, ", plural(answer.data.report.split("\n").length, "line")] }), _jsx("pre", { tabIndex: 0, children: answer.data.report })] }) })] })] }));
}
function AboutCard({ version }) {
    const labels = version.labels ?? [];
    return (_jsx(Card, { title: "About this version", children: _jsx(Facts, { facts: [
                ["Version", _jsx("code", { children: version.version }, "v")],
                ["Trained", version.created ? ago(version.created) : "–"],
                ["Data", version.data?.join(", ") || "–"],
                ["Licence", version.licence ?? "–"],
                ["Space", _jsx("code", { children: version.space }, "s")],
                ...(labels.length > 0 ? [["Labels", _jsx(Labels, { labels: labels }, "l")]] : []),
                ...(version.none_label ? [["Out of scope", _jsx(Badge, { children: version.none_label }, "o")]] : []),
            ] }) }));
}
const SHOWN = 12;
function Labels({ labels }) {
    return (_jsxs("span", { class: "labels", children: [labels.slice(0, SHOWN).map((label) => (_jsx(Badge, { children: label }, label))), labels.length > SHOWN && _jsxs("span", { class: "note", children: ["and ", count(labels.length - SHOWN), " more"] })] }));
}
