/** A tool call: what was asked of it, how far it is, what came of it; and the sub-agent that it started. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { CopyButton } from "../components/CopyButton";
import { Icon } from "../components/Icon";
import { Spinner } from "../components/Spinner";
import { duration, t } from "../i18n";
import { Permission, QuestionForm } from "./Asking";
import { useConversation } from "./context";
import { parsed } from "./fold";
import { isDenied, isQuestion, permissionFor, questionsOf } from "./questions";
import { TurnView } from "./Turn";
import type { CallStatus, Json, ToolCall, Turn } from "./wire";

/** The tool that starts a sub-agent. */
const AGENT = "Agent";
const LONGEST = 20_000;
const LOOKS: Record<CallStatus, string> = {
    pending: "badge",
    done: "badge good",
    error: "badge danger",
    cancelled: "badge",
    awaiting_answer: "badge warning",
};

export function Call({ call, turn }: { call: ToolCall; turn: Turn }) {
    const children = useConversation().children.value.get(call.id) ?? [];
    const permission = permissionFor(call, turn);
    const isFork = children.length > 0;
    if (isQuestion(call)) return <Asked call={call} />;
    return (
        <div class={`call ${call.status}`}>
            <details open={permission !== null || (isFork && call.status !== "done")}>
                <summary>
                    <Icon name="chevron" />
                    <Icon name={isFork || call.tool_name === AGENT ? "fork" : "tool"} />
                    <span class="call-name">{call.display_name || call.tool_name}</span>
                    <span class="call-brief">{brief(call)}</span>
                    <State call={call} turn={turn} />
                </summary>
                <div class="call-body">
                    {!isFork && <Value label={t("chat.arguments")} value={parsed(call.arguments)} />}
                    {isFork && (
                        <section class="fork" aria-label={t("chat.sub-agent")}>
                            {children.map((entry) => (
                                <TurnView key={entry.id} entry={entry} />
                            ))}
                        </section>
                    )}
                    {call.result !== null && !isFork && (
                        <Value label={t(call.status === "error" ? "chat.fault" : "chat.result")} value={call.result} />
                    )}
                </div>
            </details>
            {permission !== null && <Permission id={permission} tool={call.display_name || call.tool_name} />}
        </div>
    );
}

function State({ call, turn }: { call: ToolCall; turn: Turn }) {
    return (
        <span class="call-state">
            {call.duration_ms !== null && <span class="call-time">{duration(call.duration_ms)}</span>}
            {call.status === "pending" ? (
                <>
                    <Elapsed since={turn.started_at} />
                    <Spinner />
                    <span class="visually-hidden">{t("chat.call.pending")}</span>
                </>
            ) : (
                <span class={isDenied(call) ? "badge" : LOOKS[call.status]}>
                    {t(isDenied(call) ? "chat.call.denied" : `chat.call.${call.status}`)}
                </span>
            )}
        </span>
    );
}

/** Seconds that go by while a call runs, from the second on. */
function Elapsed({ since }: { since: string | null }) {
    const now = useSignal(Date.now());
    useEffect(() => {
        const ticking = setInterval(() => (now.value = Date.now()), 1_000);
        return () => clearInterval(ticking);
    }, []);
    const ms = since === null ? 0 : now.value - new Date(since).getTime();
    return ms < 2_000 ? null : <span class="call-time">{duration(Math.floor(ms / 1_000) * 1_000)}</span>;
}

/** A question, with its form while it waits, and with what was answered after. */
function Asked({ call }: { call: ToolCall }) {
    if (call.status === "awaiting_answer") return <QuestionForm call={call} />;
    return (
        <div class="call asked">
            {questionsOf(call).map((each, index) => (
                <p key={index}>
                    <Icon name="chat" />
                    {each.question}
                </p>
            ))}
        </div>
    );
}

function Value({ label, value }: { label: string; value: Json }) {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    const isLong = text.length > LONGEST;
    return (
        <figure class="value">
            <figcaption>
                <span>{label}</span>
                <CopyButton text={text} label={t("chat.copy-value", { what: label })} />
            </figcaption>
            <pre tabIndex={0}>{isLong ? `${text.slice(0, LONGEST)} …` : text}</pre>
        </figure>
    );
}

/** The arguments on one line, as far as they fit. */
function brief(call: ToolCall): string {
    const said = parsed(call.arguments);
    if (typeof said !== "object" || said === null || Array.isArray(said)) return "";
    if (call.tool_name === AGENT && typeof said["description"] === "string") return said["description"];
    return Object.entries(said)
        .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
        .join(", ")
        .slice(0, 160);
}
