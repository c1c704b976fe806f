/** A tool call: its arguments, state and result, and the turns of the sub-agent that it started. */
import { useSignal } from "@preact/signals";
import { type ComponentChildren, toChildArray } from "preact";
import { useEffect } from "preact/hooks";
import { Icon } from "../components/Icon";
import { Spinner } from "../components/Spinner";
import { duration, t } from "../i18n";
import { Permission, QuestionForm } from "./Asking";
import { useConversation } from "./context";
import { parsed } from "./fold";
import { Value } from "./Value";
import { isDenied, isQuestion, permissionFor, questionsOf } from "./questions";
import type { CallStatus, ToolCall, Turn } from "./wire";

/** The tool that starts a sub-agent. */
const AGENT = "Agent";
const BADGES: Record<CallStatus, string> = {
    pending: "badge",
    done: "badge good",
    error: "badge danger",
    cancelled: "badge",
    awaiting_answer: "badge warning",
};

interface Props {
    call: ToolCall;
    turn: Turn;
    /** The turns of the sub-agent that the call started. */
    children?: ComponentChildren;
}

export function Call({ call, turn, children }: Props) {
    const conversation = useConversation();
    const permission = permissionFor(call, turn);
    const isFork = toChildArray(children).length > 0;
    if (isQuestion(call)) return <AskedQuestion call={call} />;
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
                            {children}
                        </section>
                    )}
                    {call.result !== null && !isFork && (
                        <Value label={t(call.status === "error" ? "chat.fault" : "chat.result")} value={call.result} />
                    )}
                </div>
            </details>
            {permission !== null && conversation.isWritable.value && (
                <Permission
                    id={permission}
                    tool={call.display_name || call.tool_name}
                    isRepeat={call.pending_question_ref?.repeat === true}
                />
            )}
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
                <span class={isDenied(call) ? "badge" : BADGES[call.status]}>
                    {t(isDenied(call) ? "chat.call.denied" : `chat.call.${call.status}`)}
                </span>
            )}
        </span>
    );
}

/** The time elapsed while a call runs, shown after two seconds. */
function Elapsed({ since }: { since: string | null }) {
    const now = useSignal(Date.now());
    useEffect(() => {
        const ticking = setInterval(() => (now.value = Date.now()), 1_000);
        return () => clearInterval(ticking);
    }, []);
    const ms = since === null ? 0 : now.value - new Date(since).getTime();
    return ms < 2_000 ? null : <span class="call-time">{duration(Math.floor(ms / 1_000) * 1_000)}</span>;
}

/** A question: its form while it waits, its text afterwards. */
function AskedQuestion({ call }: { call: ToolCall }) {
    const isWritable = useConversation().isWritable.value;
    if (call.status === "awaiting_answer" && isWritable) return <QuestionForm call={call} />;
    return (
        <div class="call asked-question">
            {questionsOf(call).map((each, index) => (
                <p key={index}>
                    <Icon name="chat" />
                    {each.question}
                </p>
            ))}
        </div>
    );
}

/** The arguments on one line, truncated. */
function brief(call: ToolCall): string {
    const parameters = parsed(call.arguments);
    if (typeof parameters !== "object" || parameters === null || Array.isArray(parameters)) return "";
    if (call.tool_name === AGENT && typeof parameters["description"] === "string") return parameters["description"];
    return Object.entries(parameters)
        .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
        .join(", ")
        .slice(0, 160);
}
