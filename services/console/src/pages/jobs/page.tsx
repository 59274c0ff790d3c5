/** Jobs: what the platform has to do, does and has done; what failed, and what could not be done at all. */

import { CodeSamples, type Sample, keywords } from "../../components/CodeSamples.js";
import { Badge, Page } from "../../components/Layout.js";
import { Tabs } from "../../components/Tabs.js";
import { plural } from "../../format.js";
import { useRequest } from "../../request.js";
import { DeadLettersView } from "./DeadLettersView.js";
import { JobView } from "./JobView.js";
import { JobsView } from "./JobsView.js";
import { type Connection, eventsRequest, listRequest, useJobs } from "./live.js";
import { type JobsState, filterOf, jobsState, setState } from "./state.js";
import type { DeadLetterPage } from "./types.js";

export default function JobsPage() {
  const state = jobsState();
  const answer = useJobs(filterOf(state));
  const dead = useRequest<DeadLetterPage>({ method: "GET", path: "/v1/dead-letters", query: { limit: 200 } }, { everyS: 30 });
  const letters = dead.data?.dead_letters.length ?? 0;
  const tabs = [
    { id: "jobs", label: "Jobs" },
    {
      id: "dead",
      label: (
        <>
          Dead letters{" "}
          {letters > 0 && (
            <Badge tone="bad" title={plural(letters, "dead letter")}>
              {dead.data?.next_cursor ? `${letters}+` : letters}
            </Badge>
          )}
        </>
      ),
    },
  ];
  const open = state.job !== null;
  const known = answer.jobs?.find((job) => job.id === state.job);
  return (
    <Page
      title="Jobs"
      wide
      about="What was accepted, is worked on, and has ended with a result or a reason."
      actions={
        <>
          <LiveBadge connection={answer.connection} />
          <CodeSamples samples={samplesOf(state)} />
        </>
      }
    >
      <div class={open ? "jobs-grid open" : "jobs-grid"}>
        <div class="jobs-list">
          <Tabs label="Jobs or dead letters" tabs={tabs} selected={state.view} onSelect={(view) => setState({ view: view === "jobs" ? null : view })}>
            {state.view === "jobs" ? <JobsView state={state} answer={answer} /> : <DeadLettersView state={state} answer={dead} />}
          </Tabs>
        </div>
        {state.job !== null && <JobView key={state.job} id={state.job} known={known} onChanged={dead.reload} />}
      </div>
    </Page>
  );
}

function LiveBadge({ connection }: { connection: Connection }) {
  if (connection === "live") return <Badge tone="good" title="Changes are shown as they happen">live</Badge>;
  return <Badge tone="warning">{connection === "lost" ? "connecting again" : "connecting"}</Badge>;
}

function samplesOf(state: JobsState): Sample[] {
  if (state.view === "dead") {
    return [
      { title: "List dead letters", request: { method: "GET", path: "/v1/dead-letters" }, python: 'for job in client.jobs(status="dead"):\n    print(job)' },
      { title: "Replay them all", request: { method: "POST", path: "/v1/dead-letters/replay" }, python: "print(client.replay_dead())" },
    ];
  }
  const filter = filterOf(state);
  const arguments_ = keywords({
    status: filter.statuses.length === 1 ? filter.statuses[0] : undefined,
    kind: filter.kinds.length === 1 ? filter.kinds[0] : undefined,
    reads: filter.reads || undefined,
  }).replace(/^, /, "");
  const python = `for job in client.jobs(${arguments_}):\n    print(job)`;
  return [
    { title: "List jobs", request: listRequest(filter), python },
    { title: "Follow them", request: eventsRequest(filter), python: "# one job until it ends\nfor event in client.events(JOB_ID):\n    print(event)" },
  ];
}
