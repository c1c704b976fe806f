/** One turn of a conversation. */
import type { ComponentChildren } from "preact";
import { to } from "../browser/router";
import { act } from "../cards/act";
import { Bridge } from "../cards/Bridge";
import { ToolCard } from "../cards/ToolCard";
import type { Action } from "../cards/schema";
import { UiSchema } from "../cards/UiSchema";
import { CopyButton } from "../components/CopyButton";
import { Icon } from "../components/Icon";
import { Time } from "../components/Time";
import { count, duration, t } from "../i18n";
import { AttachmentChip } from "./Attachment";
import { Call } from "./Call";
import { useConversation } from "./context";
import type { Entry } from "./turns";
import { Markdown } from "../components/Markdown";
import { isAskedByCall, isPermission } from "./questions";
import { UserTurn } from "./UserTurn";
import { type Block, type ChatEnding, isMessage, type Json, textOf, type Turn } from "./wire";

const MIN_DURATION_MS = 100;

interface Props {
    entry: Entry;
    /** The speaker's name, in the first turn of an answer only. */
    speaker?: string | null;
    /** Whether the same loop continues below. */
    isContinued?: boolean;
    /** Whether it is the newest turn: only its failure is announced. */
    isNewest?: boolean;
    children?: ComponentChildren;
}

export function TurnView({ entry, speaker = null, isContinued = false, isNewest = false, children }: Props) {
    const turn = entry.turn.value;
    if (turn.kind === "compaction") return <Compaction turn={turn} />;
    if (turn.role === "user") {
        return (
            <UserTurn turn={turn}>
                {turn.chat_end && (
                    <div class="unanswered">
                        <ChatEndNotice end={turn.chat_end} isNewest={isNewest} />
                        {children}
                    </div>
                )}
            </UserTurn>
        );
    }
    if (turn.role === "system") return <SystemTurn turn={turn} />;
    return (
        <div class="turn assistant">
            {speaker !== null && <h3 class="speaker">{speaker}</h3>}
            <Memories refs={turn.memory_refs} />
            {turn.cut ? (
                <div class="cut-text">
                    <Blocks turn={turn} />
                </div>
            ) : (
                <Blocks turn={turn} />
            )}
            <Schema turn={turn} />
            <Ending turn={turn} isContinued={isContinued} isNewest={isNewest} />
            {children}
        </div>
    );
}

// --- assistant ----------------------------------------------------------------------------------------------------------

export function Blocks({ turn }: { turn: Turn }) {
    const groups = grouped(turn.blocks);
    const last = turn.blocks.length - 1;
    return (
        <>
            {groups.map((group) =>
                group.calls === null ? (
                    <BlockView
                        key={group.at}
                        block={group.block}
                        turn={turn}
                        isGrowing={turn.status === "streaming" && group.at === last}
                    />
                ) : (
                    <Calls key={group.at} ids={group.calls} turn={turn} />
                ),
            )}
        </>
    );
}

type Group = { at: number; block: Block; calls: null } | { at: number; block: Block; calls: string[] };

/** Adjacent calls were made in parallel and are shown as a group. Results are shown inside their calls. */
function grouped(blocks: readonly Block[]): Group[] {
    const groups: Group[] = [];
    blocks.forEach((block, at) => {
        if (block.type === "tool_result") return;
        if (block.type !== "tool_use") {
            groups.push({ at, block, calls: null });
            return;
        }
        const before = groups.at(-1);
        if (before !== undefined && before.calls !== null) before.calls.push(block.tool_call_id ?? "");
        else groups.push({ at, block, calls: [block.tool_call_id ?? ""] });
    });
    return groups;
}

function Calls({ ids, turn }: { ids: readonly string[]; turn: Turn }) {
    const subAgents = useConversation().children.value;
    const calls = turn.tool_calls.filter((call) => ids.includes(call.id) && !isPermission(call));
    if (calls.length === 0) return null;
    const count = calls.filter((call) => !isAskedByCall(call)).length;
    return (
        <div class={count > 1 ? "calls together" : "calls"}>
            {count > 1 && <div class="calls-head">{t("chat.calls-together", { count })}</div>}
            {calls.map((call) => (
                <Call key={call.id} call={call} turn={turn}>
                    {subAgents.get(call.id)?.map((entry, index, all) => (
                        <TurnView key={entry.id} entry={entry} isContinued={index < all.length - 1} />
                    ))}
                </Call>
            ))}
        </div>
    );
}

function BlockView({ block, turn, isGrowing }: { block: Block; turn: Turn; isGrowing: boolean }) {
    const conversation = useConversation();
    const text = typeof block.content === "string" ? block.content : "";
    switch (block.type) {
        case "text":
            if (block.attachment) return <AttachmentChip attachment={block.attachment} note={text} turn={turn} />;
            return <Markdown text={text} isGrowing={isGrowing} />;
        case "thinking":
            return <Thinking text={text} isGrowing={isGrowing} />;
        case "tool_ui":
            return <ToolCard card={block.content} tool={block.display_name ?? ""} />;
        case "tool_bridge": {
            const id = block.tool_call_id ?? "";
            return <Bridge bridge={block.content} toolCallId={id} isLive={conversation.liveCalls.has(id)} />;
        }
        case "plan_status":
            return hasLaterPlan(conversation.entries.value, turn, block) ? (
                <details class="thinking">
                    <summary>
                        <Icon name="chevron" />
                        {t("chat.plan-before")}
                    </summary>
                    <Plan plan={block.content} />
                </details>
            ) : (
                <Plan plan={block.content} />
            );
        default:
            return null;
    }
}

/** Whether the same answer shows the plan again below. Only its newest state is shown in full. */
function hasLaterPlan(entries: readonly Entry[], turn: Turn, block: Block): boolean {
    const isPlan = (each: Block): boolean => each.type === "plan_status";
    if (turn.blocks.slice(turn.blocks.indexOf(block) + 1).some(isPlan)) return true;
    const at = entries.findIndex((each) => each.id === turn.turn_id);
    if (at < 0) return false;
    for (const { turn: later } of entries.slice(at + 1)) {
        if (isMessage(later.value)) return false;
        if (later.value.blocks.some(isPlan)) return true;
    }
    return false;
}

function Thinking({ text, isGrowing }: { text: string; isGrowing: boolean }) {
    return (
        <details class={isGrowing ? "thinking growing" : "thinking"}>
            <summary>
                <Icon name="chevron" />
                {t(isGrowing ? "chat.thinking" : "chat.thought")}
            </summary>
            <Markdown text={text} isGrowing={isGrowing} />
        </details>
    );
}

const STEPS = ["pending", "in_progress", "done", "skipped"] as const;
const PLANS = ["draft", "approved", "in_progress", "done"] as const;

function Plan({ plan }: { plan: Json }) {
    if (typeof plan !== "object" || plan === null || Array.isArray(plan)) return null;
    const steps = Array.isArray(plan["steps"]) ? plan["steps"] : [];
    const status = PLANS.find((each) => each === plan["status"]);
    return (
        <section class="plan">
            <header>
                <strong>{t("chat.plan")}</strong>
                {status && <span class="badge">{t(`chat.plan.${status}`)}</span>}
            </header>
            <ol>
                {steps.map((step, index) => {
                    const each = typeof step === "object" && step !== null && !Array.isArray(step) ? step : {};
                    const state = STEPS.find((known) => known === each["status"]) ?? "pending";
                    return (
                        <li key={index} class={state}>
                            {String(each["title"] ?? "")}
                            <span class="visually-hidden"> ({t(`chat.step.${state}`)})</span>
                        </li>
                    );
                })}
            </ol>
        </section>
    );
}

function Memories({ refs }: { refs: Turn["memory_refs"] }) {
    if (!refs || refs.length === 0) return null;
    return (
        <details class="memories">
            <summary>
                <Icon name="memory" />
                {t("chat.memories", { count: refs.length })}
            </summary>
            <ul>
                {refs.map((each) => (
                    <li key={each.id}>{each.content_preview}</li>
                ))}
            </ul>
        </details>
    );
}

/** The answer's user interface, if the agent made one. */
function Schema({ turn }: { turn: Turn }) {
    const conversation = useConversation();
    const schema = conversation.schemas.of(turn);
    if (schema === null) return null;
    const say = (text: string): Promise<void> => conversation.say([{ type: "text", text }]);
    const onAction = (action: Action): void => void act(action, say);
    return <UiSchema tree={schema} {...(conversation.isWritable.value && { onAction })} />;
}

/** Why an answer is missing or incomplete. */
function Ending({ turn, isContinued, isNewest }: { turn: Turn; isContinued: boolean; isNewest: boolean }) {
    if (turn.chat_end !== undefined) return <ChatEndNotice end={turn.chat_end} isNewest={isNewest} />;
    if (turn.status === "failed")
        return <EndNotice isFailed isNewest={isNewest} text={turn.failure_reason || t("chat.failed")} />;
    if (turn.cut) return <EndNotice text={t(isContinued ? "chat.cut-continued" : "chat.cut")} />;
    return turn.status === "interrupted" ? <EndNotice text={t("chat.interrupted")} /> : null;
}

const KNOWN_ENDS = ["max_tokens", "refusal", "max_steps", "interrupted"] as const;

function ChatEndNotice({ end, isNewest }: { end: ChatEnding; isNewest: boolean }) {
    if (end.code === "cancelled") return <EndNotice text={t("chat.interrupted")} />;
    const known = KNOWN_ENDS.find((each) => each === end.code);
    const text = known === undefined ? end.message || t("chat.failed") : t(`chat.end.${known}`);
    return <EndNotice isFailed={end.status === "failed"} isNewest={isNewest} text={text} code={end.code} />;
}

interface NoticeProps {
    isFailed?: boolean;
    isNewest?: boolean;
    text: string;
    code?: string | null;
}

function EndNotice({ isFailed = false, isNewest = false, text, code }: NoticeProps) {
    return (
        <div class={isFailed ? "ending failed" : "ending"} role={isFailed && isNewest ? "alert" : undefined}>
            <Icon name={isFailed ? "warning" : "stop"} />
            <span class="grow">{text}</span>
            {code && <code title={t("chat.end-code")}>{code}</code>}
        </div>
    );
}

/** The way to what a run did, step by step. Chats that only take an answer have no run. */
export function InspectLink({ run }: { run: string | null | undefined }) {
    const { id } = useConversation();
    if (!run?.startsWith("chat_")) return null;
    return (
        <a
            class="button plain small icon-only"
            href={to("run", id, run)}
            aria-label={t("run.open")}
            title={t("run.open")}
        >
            <Icon name="timeline" />
        </a>
    );
}

/** The tokens of all model calls of an answer, those of its sub-agents included, as in the run inspector. */
function tokensOf(turns: readonly Turn[], subAgents: ReadonlyMap<string, readonly Entry[]>) {
    const total = { input: 0, output: 0 };
    for (const turn of turns) {
        const below = turn.tool_calls.flatMap((call) => subAgents.get(call.id) ?? []);
        const { input, output } = tokensOf(
            below.map((entry) => entry.turn.value),
            subAgents,
        );
        total.input += (turn.usage?.input_tokens ?? 0) + input;
        total.output += (turn.usage?.output_tokens ?? 0) + output;
    }
    return total;
}

/** The totals of an answer, and its actions. */
export function AnswerFoot({ turns, children }: { turns: readonly Turn[]; children?: ComponentChildren }) {
    const { input, output } = tokensOf(turns, useConversation().children.value);
    const ms = turns.reduce((total, turn) => total + turn.duration_ms, 0);
    const text = turns
        .filter((turn) => !turn.cut)
        .map(textOf)
        .filter(Boolean)
        .join("\n\n");
    return (
        <div class="answer-foot">
            {text && <CopyButton text={text} label={t("chat.copy-answer")} />}
            {children}
            <InspectLink run={turns.findLast((turn) => turn.chat_run_id)?.chat_run_id} />
            <span class="answer-facts">
                <Time at={turns[0]?.started_at} />
                {turns[0]?.model && <span>{turns[0].model}</span>}
                {ms >= MIN_DURATION_MS && <span>{duration(ms)}</span>}
                {input + output > 0 && (
                    <span title={t("chat.usage-long", { input: count(input), output: count(output) })}>
                        {t("chat.usage", { input: count(input), output: count(output) })}
                    </span>
                )}
            </span>
        </div>
    );
}

// --- system -------------------------------------------------------------------------------------------------------------

function SystemTurn({ turn }: { turn: Turn }) {
    const lines = turn.blocks.flatMap((block) => {
        if (block.type === "system_notification") return [String(block.content)];
        if (block.type === "planning_enter") return [t("chat.planning-on")];
        if (block.type === "planning_exit") return [t("chat.planning-off")];
        return [];
    });
    if (lines.length === 0) return null;
    return (
        <div class="turn system">
            {lines.map((line, index) => (
                <p key={index}>{line}</p>
            ))}
        </div>
    );
}

function Compaction({ turn }: { turn: Turn }) {
    return (
        <details class="turn compaction">
            <summary>
                <span>
                    {t("chat.compacted", { count: turn.archived_count ?? 0 })}{" "}
                    <span class="soft">
                        {t("chat.compacted-tokens", {
                            before: count(turn.tokens_before ?? 0),
                            after: count(turn.tokens_after ?? 0),
                        })}
                    </span>
                </span>
            </summary>
            <Markdown text={turn.summary_full ?? turn.summary_preview ?? ""} />
        </details>
    );
}
