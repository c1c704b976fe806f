/** The server's health: readiness, metrics, agents and protocols. */
import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, ask } from "../../api/client";
import { ApiError } from "../../api/errors";
import { key } from "../../api/key";
import { readOfWindow, storeForWindow } from "../../browser/storage";
import { Button } from "../../components/Button";
import { Failed } from "../../components/Empty";
import { Loading } from "../../components/Spinner";
import { errorMessage } from "../../components/Toast";
import { ago, count, dateTime, duration, size, t } from "../../i18n";
import { Chart } from "./Chart";
import { added, errorRatio, p95, parsed, type Reading, reading, runRate, written } from "./history";
import { parts, readMetrics, type Sample, total } from "./metrics";
import { Trend } from "./Trend";
import "../pages.css";
import "./health.css";

interface AgentInfo {
    readonly name: string;
    readonly title?: string;
    readonly description?: string;
    readonly tools?: readonly { readonly name: string; readonly description?: string }[];
}

interface Snapshot {
    readonly state: string;
    readonly version: string | null;
    readonly agents: readonly AgentInfo[];
    readonly samples: readonly Sample[] | null;
    readonly withheld: string | null;
    readonly at: number;
}

const EVERY_MS = 3_000;
const HISTORY_LENGTH = 60;

const STORED = "health";

/** Kept over visits of this page and over reloads, so that the charts continue. */
const readings = signal<readonly Reading[]>(parsed(readOfWindow(STORED) ?? "[]"));
let owner = key.peek();
key.subscribe((now) => {
    if (now !== owner) readings.value = [];
    owner = now;
});
addEventListener("pagehide", () => storeForWindow(STORED, written(readings.peek())));

export default function Page() {
    const snapshot = useSignal<Snapshot | null>(null);
    const error = useSignal<unknown>(null);
    const isPaused = useSignal(false);
    const history = useSignal<readonly Snapshot[]>([]);
    useEffect(() => {
        if (isPaused.value) return;
        const abort = new AbortController();
        const again = async (): Promise<void> => {
            try {
                const now = await fetchSnapshot(abort.signal, snapshot.peek());
                snapshot.value = now;
                history.value = [...history.peek().slice(1 - HISTORY_LENGTH), now];
                if (now.samples !== null) readings.value = added(readings.peek(), reading(now.samples, now.at));
                error.value = null;
            } catch (fault) {
                if (abort.signal.aborted) return;
                error.value = fault;
            }
        };
        void again();
        const ticking = setInterval(() => void (document.hidden || again()), EVERY_MS);
        return () => {
            clearInterval(ticking);
            abort.abort();
        };
    }, [isPaused.value]);
    const current = snapshot.value;
    return (
        <div class="page">
            <div class="page-body">
                <header class="page-head">
                    <h1>{t("nav.health")}</h1>
                    <Button isSmall aria-pressed={isPaused.value} onClick={() => (isPaused.value = !isPaused.value)}>
                        {t(isPaused.value ? "health.resume" : "health.pause")}
                    </Button>
                </header>
                {current === null && error.value === null && <Loading />}
                {current === null && error.value !== null && <Failed error={error.value} />}
                {current !== null && (
                    <div class="stack health">
                        <State current={current} error={error.value} />
                        {current.samples === null ? (
                            <p class="note">{t("health.withheld", { why: current.withheld ?? "" })}</p>
                        ) : (
                            <>
                                <Charts />
                                <Figures samples={current.samples} history={history.value} />
                            </>
                        )}
                        <Agents agents={current.agents} />
                    </div>
                )}
            </div>
        </div>
    );
}

/** Fetches everything at once. What the server does not serve, or this key may not see, is left out. */
async function fetchSnapshot(signal: AbortSignal, before: Snapshot | null): Promise<Snapshot> {
    const state = await readiness(signal);
    const version = before?.version ?? (await optional(api.get<Version>("/api/version", {}, signal)))?.server.version;
    const agents = before?.agents ?? (await optional(api.get<Meta>("/aap/v3/meta", {}, signal)))?.agents;
    let samples: Sample[] | null = null;
    let withheld: string | null = null;
    try {
        samples = readMetrics(await (await ask("GET", "/metrics", { signal })).text());
    } catch (fault) {
        if (!(fault instanceof ApiError) || fault.status === 0) throw fault;
        withheld = errorMessage(fault);
    }
    return { state, version: version ?? null, agents: agents ?? [], samples, withheld, at: Date.now() };
}

interface Version {
    readonly server: { readonly version: string };
}

interface Meta {
    readonly agents: readonly AgentInfo[];
}

async function readiness(signal: AbortSignal): Promise<string> {
    try {
        return (await api.get<{ status: string }>("/readyz", {}, signal)).status;
    } catch (fault) {
        if (fault instanceof ApiError && fault.status === 503) return fault.message || "unavailable";
        throw fault;
    }
}

async function optional<T>(request: Promise<T>): Promise<T | null> {
    try {
        return await request;
    } catch (fault) {
        if (fault instanceof ApiError && fault.status >= 400) return null;
        throw fault;
    }
}

function State({ current, error }: { current: Snapshot; error: unknown }) {
    const isReady = current.state === "ready" && error === null;
    return (
        <section class="card health-state" role="status">
            <span class={isReady ? "health-lamp good" : "health-lamp"} aria-hidden="true" />
            <div class="grow">
                <h2>{error === null ? t(isReady ? "health.ready" : "health.not-ready") : errorMessage(error)}</h2>
                <p class="soft small">
                    {current.version !== null && `Dragoman ${current.version} · `}
                    {isReady ? t("health.checked") : current.state}
                </p>
            </div>
            <a class="small" href="docs">
                {t("health.docs")}
            </a>
        </section>
    );
}

function Charts() {
    const all = readings.value;
    const perMinute = (value: number): string =>
        t("health.per-minute", { count: count(value < 10 ? Math.round(value * 10) / 10 : Math.round(value)) });
    return (
        <section aria-label={t("health.charts")} class="charts">
            <Chart
                title={t("health.rate")}
                hint={t("health.last-minute")}
                points={runRate(all)}
                least={5}
                text={perMinute}
            />
            <Chart
                title={t("health.errors")}
                hint={t("health.errors-why")}
                points={errorRatio(all)}
                least={0.1}
                text={(value) => `${count(Math.round(value * 1000) / 10)}%`}
            />
            <Chart
                title={t("health.commits-95")}
                hint={t("health.commits-why")}
                points={p95(all, "commits")}
                least={0.01}
                text={ms}
            />
            <Chart
                title={t("health.first-95")}
                hint={t("health.first-why")}
                points={p95(all, "firstOutputs")}
                least={0.1}
                text={ms}
            />
        </section>
    );
}

interface Figure {
    readonly label: string;
    readonly value: string;
    readonly hint?: string;
    readonly trend?: readonly number[];
}

function Figures({ samples, history }: { samples: readonly Sample[]; history: readonly Snapshot[] }) {
    const value = (name: string): string => count(total(samples, name) ?? 0);
    const series = (name: string): number[] => history.map((each) => total(each.samples ?? [], name) ?? 0);
    const started = total(samples, "process_start_time_seconds");
    const resident = total(samples, "process_resident_memory_bytes");
    const figures: Figure[] = [
        {
            label: t("health.runs"),
            value: value("dragoman_runs_active"),
            hint: t("health.runs-all", { count: value("dragoman_runs_started_total") }),
            trend: series("dragoman_runs_active"),
        },
        {
            label: t("health.streams"),
            value: value("dragoman_streams_open"),
            hint: t("health.streams-why"),
            trend: series("dragoman_streams_open"),
        },
        {
            label: t("health.events"),
            value: `${count(Math.round(rate(history, "dragoman_events_total")))}/s`,
            hint: t("health.events-all", { count: value("dragoman_events_total") }),
            trend: rates(history, "dragoman_events_total"),
        },
        { label: t("health.sessions"), value: value("dragoman_sessions_in_memory"), hint: t("health.sessions-why") },
        {
            label: t("health.memory"),
            value: resident === null ? "–" : size(resident),
            hint: t("health.memory-why"),
            trend: series("process_resident_memory_bytes"),
        },
        {
            label: t("health.started"),
            value: started === null ? "–" : ago(new Date(started * 1000).toISOString()),
            hint: started === null ? "" : dateTime(new Date(started * 1000)),
        },
    ];
    return (
        <>
            <section aria-label={t("health.figures")} class="figures">
                {figures.map(({ label, value, hint, trend }) => (
                    <div key={label} class="card figure">
                        <span class="soft small">{label}</span>
                        <strong>{value}</strong>
                        {trend !== undefined && <Trend values={trend} />}
                        <span class="soft small">{hint}</span>
                    </div>
                ))}
            </section>
            <section class="two">
                <Parts title={t("health.stopped")} of={parts(samples, "dragoman_runs_stopped_total", "reason")} />
                <Parts title={t("health.by-protocol")} of={parts(samples, "dragoman_streams_open", "protocol")} />
                <Parts title={t("health.tools")} of={parts(samples, "dragoman_tool_calls_total", "outcome")} />
                <Parts title={t("health.models")} of={parts(samples, "dragoman_model_calls_total", "model")} />
                <Parts title={t("health.refused")} of={parts(samples, "dragoman_refused_total", "code")} />
                <Parts title={t("health.failed")} of={parts(samples, "dragoman_failed_total", "protocol")} />
            </section>
        </>
    );
}

function Parts({ title, of }: { title: string; of: readonly (readonly [string, number])[] }) {
    return (
        <div class="card parts">
            <h2>{title}</h2>
            {of.length === 0 && <p class="soft small">{t("health.none")}</p>}
            <dl>
                {of.slice(0, 8).map(([name, value]) => (
                    <div key={name}>
                        <dt class="mono">{name}</dt>
                        <dd>{count(value)}</dd>
                    </div>
                ))}
            </dl>
        </div>
    );
}

function Agents({ agents }: { agents: readonly AgentInfo[] }) {
    if (agents.length === 0) return null;
    return (
        <section class="stack" aria-label={t("health.agents")}>
            <h2>{t("health.agents")}</h2>
            <ul class="items">
                {agents.map((agent) => (
                    <li key={agent.name} class="card item">
                        <h3>
                            {agent.title ?? agent.name} {agent.title && <code class="soft">{agent.name}</code>}
                        </h3>
                        {agent.description && <p class="soft">{agent.description}</p>}
                        <div class="item-facts">
                            {(agent.tools ?? []).map((tool) => (
                                <span key={tool.name} class="badge mono" title={tool.description}>
                                    {tool.name}
                                </span>
                            ))}
                        </div>
                    </li>
                ))}
            </ul>
        </section>
    );
}

/** A counter's rate between samples. After a restart the counter starts from 0. */
function rates(history: readonly Snapshot[], name: string): number[] {
    return history.slice(1).map((now, index) => {
        const before = history[index];
        if (before === undefined) return 0;
        const grown = (total(now.samples ?? [], name) ?? 0) - (total(before.samples ?? [], name) ?? 0);
        return Math.max(0, grown) / Math.max(0.001, (now.at - before.at) / 1000);
    });
}

const rate = (history: readonly Snapshot[], name: string): number => rates(history.slice(-2), name).at(-1) ?? 0;

const ms = (seconds: number): string =>
    seconds < 0.01 ? `${count(Math.round(seconds * 10_000) / 10)} ms` : duration(seconds * 1000);
