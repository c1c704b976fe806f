/** The run inspector: what an answer took, step by step. It reads the log, so it works for runs of any age. */
import { useEffect } from "preact/hooks";
import { api } from "../../api/client";
import { ApiError } from "../../api/errors";
import { useLoaded } from "../../api/loading";
import { address, to } from "../../browser/router";
import "../../chat/call.css";
import { Empty, Failed } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { Loading } from "../../components/Spinner";
import { Time } from "../../components/Time";
import { count, duration, t } from "../../i18n";
import { NAMES } from "../../lens/adapters";
import "../pages.css";
import { flow, RowView } from "./Row";
import "./run.css";
import { activeMs, endOf, rowsOf, type Run, scaleOf, timeOf, type Timeline, tokensOf } from "./timeline";

const REFRESH_MS = 2_000;

export default function Page({ id }: { id: string }) {
    const name = address.value.detail;
    const path = `/api/sessions/${id}/runs/${encodeURIComponent(name)}`;
    const { state, reload } = useLoaded((signal) => api.get<Timeline>(path, undefined, signal), [path]);
    const { value, error } = state.value;
    const isOpen = value?.runs.some((run) => run.ended_at === null) ?? false;
    useEffect(() => {
        if (!isOpen) return;
        const ticking = setInterval(() => void (document.hidden || reload()), REFRESH_MS);
        return () => clearInterval(ticking);
    }, [isOpen, path]);
    const isGone = error instanceof ApiError && (error.status === 404 || error.status === 403);
    const back = (
        <a class="button" href={to("conversations", id)}>
            <Icon name="back" />
            {t("run.back")}
        </a>
    );
    return (
        <div class="page">
            <div class="page-body run-page">
                <div class="page-head">
                    <div>
                        <h1>{t("run.title")}</h1>
                        <p class="soft">{t("run.about")}</p>
                    </div>
                    {back}
                </div>
                {value === null && error === null && <Loading />}
                {isGone && <Empty icon="timeline" title={t("run.gone")} />}
                {error !== null && !isGone && <Failed error={error} onRetry={() => void reload()} />}
                {value !== null && <Runs timeline={value} path={path} />}
            </div>
        </div>
    );
}

function Runs({ timeline, path }: { timeline: Timeline; path: string }) {
    const now = Date.now();
    const rows = rowsOf(timeline, now);
    const scale = scaleOf(timeline, now);
    const tokens = tokensOf(timeline);
    const facts = [
        [t("run.time"), duration(activeMs(timeline, now))],
        [t("run.steps"), count(timeline.steps.length)],
        [t("run.calls"), count(timeline.calls.length)],
        ...(tokens === null ? [] : [[t("run.tokens"), flow(tokens)] as const]),
    ] as const;
    return (
        <>
            <dl class="run-facts">
                {facts.map(([name, value]) => (
                    <div key={name}>
                        <dt>{name}</dt>
                        <dd>{value}</dd>
                    </div>
                ))}
            </dl>
            {timeline.runs.map((run, at) => {
                const next = timeline.runs[at + 1];
                const until = next?.sequence ?? Infinity;
                const own = rows.filter((row) => row.sequence >= run.sequence && row.sequence < until);
                return (
                    <section key={run.chat_run_id} aria-label={t("run.run", { number: at + 1 })}>
                        <RunHead run={run} number={at + 1} of={timeline.runs.length} now={now} />
                        <ol class="run-rows">
                            {own.map((row) => (
                                <RowView key={row.id} row={row} scale={scale} path={path} />
                            ))}
                        </ol>
                        {next !== undefined && run.ended_at !== null && (
                            <p class="run-pause">
                                {t("run.paused", { time: duration(timeOf(next.started_at) - timeOf(run.ended_at)) })}
                            </p>
                        )}
                    </section>
                );
            })}
        </>
    );
}

const REASONS = [
    "end_turn",
    "tool_use",
    "max_tokens",
    "refusal",
    "max_steps",
    "cancelled",
    "error",
    "interrupted",
] as const;
const BADGES: Record<string, string> = { end_turn: "badge good", error: "badge danger", interrupted: "badge danger" };

/** Those that the lens has not are named as the log does. */
const protocolName = (protocol: string): string => (NAMES as Readonly<Record<string, string>>)[protocol] ?? protocol;

function RunHead({ run, number, of, now }: { run: Run; number: number; of: number; now: number }) {
    const reason = REASONS.find((each) => each === run.reason);
    const isStopped = reason === "cancelled"; // by the user: no error
    return (
        <header class="run-head">
            {of > 1 && <strong>{t("run.run", { number })}</strong>}
            <span class={reason === undefined ? "badge" : (BADGES[reason] ?? "badge warning")}>
                {reason === undefined ? t("run.running") : t(`run.reason.${reason}`)}
            </span>
            <span class="soft">{t("run.protocol", { protocol: protocolName(run.protocol) })}</span>
            <span class="soft">
                <Time at={run.started_at} />
            </span>
            <span class="soft">{duration(endOf(run.ended_at, now) - timeOf(run.started_at))}</span>
            {run.resumed_at.length > 0 && (
                <span class="badge warning">{t("run.resumed", { count: run.resumed_at.length })}</span>
            )}
            {run.message && !isStopped && <p class="run-message">{run.message}</p>}
            {run.code && !isStopped && <code>{run.code}</code>}
        </header>
    );
}
