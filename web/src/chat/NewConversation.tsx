/** Starts a conversation: the agent, its options and the first message. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError } from "../api/errors";
import { isReadOnly } from "../api/key";
import { useLoaded } from "../api/loading";
import { Empty, Failed } from "../components/Empty";
import { Checkbox, Select, TextField } from "../components/Field";
import { Icon } from "../components/Icon";
import { Loading } from "../components/Spinner";
import { showError } from "../components/Toast";
import { t } from "../i18n";
import { store, readStored } from "../browser/storage";
import { address, go } from "../browser/router";
import { type Agent, agents, create, type Option } from "./agents";
import { Composer } from "./Composer";
import { draftOf } from "./drafts";
import { sessions } from "./list";
import { send, watchSessions } from "./socket";
import { messageOf, type Part } from "./wire";

/** Called when a conversation was created, with the message that is then sent. */
type OnBegin = (id: string, first: readonly Part[]) => void;

export function NewConversation({ onBegin }: { onBegin: OnBegin }) {
    const { state, reload } = useLoaded(agents);
    // When the server is back: it may have other agents, and a page that could not load them opens.
    useEffect(
        () =>
            watchSessions(
                () => undefined,
                () => void reload(),
            ),
        [reload],
    );
    if (isReadOnly()) {
        return (
            <Empty icon="key" title={t("chat.start-read-only")}>
                <p>{t("chat.read-only")}</p>
            </Empty>
        );
    }
    const { value, error } = state.value;
    if (value === null) return error === null ? <Loading /> : <Failed error={error} onRetry={() => void reload()} />;
    return <Start agents={value} onBegin={onBegin} />;
}

function Start({ agents, onBegin }: { agents: readonly Agent[]; onBegin: OnBegin }) {
    const name = useSignal(agents.find((each) => each.name === readStored("agent"))?.name ?? agents[0]?.name ?? "");
    const options = useSignal<Readonly<Record<string, string>>>({});
    const memory = useSignal(true);
    const isBeginning = useSignal(false);
    const agent = agents.find((each) => each.name === name.value) ?? agents[0];
    if (agent === undefined) return <p class="empty">{t("chat.no-agents")}</p>;

    const begin = async (parts: Part[]): Promise<void> => {
        store("agent", agent.name);
        const here = address.peek();
        const id = await create(agent, options.value, memory.value);
        onBegin(id, parts);
        try {
            await send("chat:send", { session_id: id, message: messageOf(parts) });
        } catch (error) {
            // The message stays here, for another agent or without its attachments, and no empty conversation is left.
            if (error instanceof ApiError && error.status !== 0) await sessions.remove(id).catch(() => undefined);
            throw error;
        }
        if (address.peek() === here) go("conversations", id); // else the user has left
    };
    const beginWith = async (text: string): Promise<void> => {
        if (isBeginning.value) return;
        isBeginning.value = true;
        await begin([{ type: "text", text }]).catch(showError);
        isBeginning.value = false;
    };
    const starters = agent._meta?.starters ?? [];
    return (
        <div class="start">
            <div class="start-body">
                <h1>{t("chat.start-title")}</h1>
                <p class="soft">{t("chat.start-text")}</p>
                <fieldset class="agents">
                    <legend class="visually-hidden">{t("chat.agent")}</legend>
                    {agents.map((each) => (
                        <label key={each.name} class={each === agent ? "agent on" : "agent"}>
                            <input
                                type="radio"
                                name="agent"
                                class="visually-hidden"
                                checked={each === agent}
                                onChange={() => {
                                    name.value = each.name;
                                    options.value = {};
                                }}
                            />
                            <strong>{each.title ?? each.name}</strong>
                            {each.description && <span class="soft small">{each.description}</span>}
                            {each._meta?.model && <code class="soft small">{each._meta.model}</code>}
                        </label>
                    ))}
                </fieldset>
                {agent._meta?.embeddedModel && (
                    <p class="start-note" role="note">
                        <Icon name="warning" />
                        <span>{t("chat.embedded")}</span>
                    </p>
                )}
                <details class="start-options">
                    <summary>
                        <Icon name="chevron" />
                        {t("chat.options")}
                    </summary>
                    <div class="stack">
                        {(agent.options ?? []).map((option) => (
                            <OptionField
                                key={`${agent.name} ${option.name}`}
                                option={option}
                                value={options.value[option.name] ?? option.default}
                                onValue={(value) => (options.value = { ...options.value, [option.name]: value })}
                            />
                        ))}
                        <Checkbox
                            label={t("chat.use-memory")}
                            value={memory.value}
                            onValue={(value) => (memory.value = value)}
                        />
                    </div>
                </details>
                {starters.length > 0 && (
                    <ul class="starters" aria-label={t("chat.starters")}>
                        {starters.map((each) => (
                            <li key={each}>
                                <button type="button" class="starter" onClick={() => void beginWith(each)}>
                                    {each}
                                </button>
                            </li>
                        ))}
                    </ul>
                )}
                <Composer
                    draft={draftOf("")}
                    placeholder={t("chat.placeholder", { agent: agent.title ?? agent.name })}
                    isRunning={false}
                    isStopping={false}
                    onSend={begin}
                    onStop={() => undefined}
                />
            </div>
        </div>
    );
}

function OptionField({ option, value, onValue }: { option: Option; value: string; onValue: (value: string) => void }) {
    const label = option.title || option.name;
    const common = { label, hint: option.description, value, onValue };
    if (option.type === "select") {
        return <Select {...common} options={(option.options ?? []).map((each) => [each, each] as const)} />;
    }
    return <TextField {...common} type={option.type === "secret" ? "password" : "text"} />;
}
