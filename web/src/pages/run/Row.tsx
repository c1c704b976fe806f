/** One model call or tool call on the timeline. It opens to everything that the log has about it. */
import { useSignal } from "@preact/signals";
import { Value } from "../../chat/Value";
import { Icon } from "../../components/Icon";
import { count, duration, t } from "../../i18n";
import { Input } from "./Input";
import { Said } from "./Said";
import { endOf, isKnown, type Row, type Step, timeOf, type ToolRun, type Usage, type Wait } from "./timeline";

const OUTCOMES: Record<string, string> = { done: "good", completed: "good", failed: "danger", interrupted: "danger" };

/** Tokens in and out. */
export const flow = ({ input_tokens, output_tokens }: Usage): string =>
    `${count(input_tokens)} → ${count(output_tokens)}`;

export function RowView({ row, scale, path }: { row: Row; scale: (at: number) => number; path: string }) {
    const isOpen = useSignal(false);
    const begin = scale(row.begin);
    const width = Math.max(0.004, scale(row.end) - begin);
    const status = row.type === "step" ? row.step.status : row.call.outcome;
    const isFork = row.type === "call" && row.call.kind === "fork";
    const kind = row.type === "step" ? "step" : isFork ? "fork" : "tool";
    return (
        <li class="run-row" style={{ "--depth": String(row.depth) }}>
            <details onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
                <summary>
                    <Icon name="chevron" />
                    <span class="run-name">
                        <Icon name={kind === "step" ? "thought" : kind} />
                        {row.type === "step" ? t("run.step", { number: row.number }) : row.call.tool_name}
                    </span>
                    <span class="run-track" aria-hidden="true">
                        <span
                            class={`run-bar ${kind} ${status === "failed" ? "failed" : ""}`}
                            style={{ left: `min(${begin * 100}%, 100% - 3px)`, width: `${width * 100}%` }}
                        />
                    </span>
                    <span class="run-brief">
                        {row.type === "step" && row.step.usage && isKnown(row.step.usage) && (
                            <span>{flow(row.step.usage)}</span>
                        )}
                        {status !== null && status !== "done" && status !== "completed" && (
                            <span class={`badge ${OUTCOMES[status] ?? ""}`}>{t(`run.status.${status}`)}</span>
                        )}
                        {row.type === "call" && status === null && (
                            <span class="badge warning">{t("run.status.open")}</span>
                        )}
                        <span class="run-time">{duration(row.end - row.begin)}</span>
                    </span>
                </summary>
                {isOpen.value && (
                    <div class="run-detail">
                        {row.type === "step" ? (
                            <StepDetail step={row.step} path={path} />
                        ) : (
                            <CallDetail call={row.call} />
                        )}
                    </div>
                )}
            </details>
        </li>
    );
}

function StepDetail({ step, path }: { step: Step; path: string }) {
    const used = step.usage === null || !step.context_window ? null : step.usage.input_tokens / step.context_window;
    const facts = [
        step.model && t("run.model", { model: step.model }),
        used !== null && used >= 0.001 && t("run.context", { percent: count(Math.round(used * 1000) / 10) }),
    ].filter(Boolean);
    return (
        <>
            {facts.length > 0 && <p class="soft small">{facts.join(" · ")}</p>}
            {step.blocks.length === 0 && <p class="soft small">{t("run.no-text")}</p>}
            {step.blocks.map((block, index) => (
                <Said key={index} block={block} />
            ))}
            <Input path={`${path}/steps/${encodeURIComponent(step.turn_id)}`} />
        </>
    );
}

function CallDetail({ call }: { call: ToolRun }) {
    const queued = call.started_at === null ? 0 : timeOf(call.started_at) - timeOf(call.opened_at);
    const ran =
        call.started_at === null || call.ended_at === null ? null : timeOf(call.ended_at) - timeOf(call.started_at);
    return (
        <>
            {(ran !== null || call.waits.length > 0) && (
                <ul class="run-waits soft small">
                    {call.waits.map((wait, index) => (
                        <li key={index}>{waitText(wait)}</li>
                    ))}
                    {ran !== null && call.waits.length === 0 && queued > 0 && (
                        <li>{t("run.queued", { time: duration(queued) })}</li>
                    )}
                    {ran !== null && <li>{t("run.ran", { time: duration(ran) })}</li>}
                </ul>
            )}
            <Value label={t("chat.arguments")} value={call.arguments} />
            {call.result !== null && (
                <Value label={t(call.outcome === "failed" ? "chat.fault" : "chat.result")} value={call.result} />
            )}
        </>
    );
}

function waitText(wait: Wait): string {
    const time = duration(endOf(wait.ended_at, Date.now()) - timeOf(wait.started_at));
    const what = t(`run.wait.${wait.kind ?? "again"}`, { time });
    if (wait.ended_at === null) return `${what} ${t("run.waiting-still")}`;
    if (wait.granted === null || wait.kind === "question") return what;
    return `${what} ${t(wait.granted ? "run.allowed" : "run.denied")}`;
}
