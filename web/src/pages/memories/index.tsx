/** The user's memories: search, create, change, disable, delete. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api } from "../../api/client";
import { useLoaded } from "../../api/loading";
import { bare } from "../../chat/wire";
import { Button, IconButton } from "../../components/Button";
import { confirmed } from "../../components/Dialog";
import { Editable } from "../../components/Editable";
import { Empty, Failed } from "../../components/Empty";
import { Filter } from "../../components/Filter";
import { Loading } from "../../components/Spinner";
import { showMessage, showError } from "../../components/Toast";
import { ago, dateTime, t } from "../../i18n";
import { to } from "../../browser/router";
import { Editor } from "./Editor";
import type { Memory } from "./memory";
import "../pages.css";

interface MemoryPage {
    readonly items: readonly Memory[];
    readonly total: number;
}

const PAGE = 50;
const PAGE_LIMIT = 100;
const TYPING_MS = 250;

export default function Page() {
    const typed = useSignal("");
    const keyword = useSignal("");
    const type = useSignal("");
    const status = useSignal("");
    const limit = useSignal(PAGE);
    const edited = useSignal<Memory | "new" | null>(null);
    useEffect(() => {
        const settled = setTimeout(() => (keyword.value = typed.value.trim()), TYPING_MS);
        return () => clearTimeout(settled);
    }, [typed.value]);
    const filters = [keyword.value, type.value, status.value, limit.value] as const;
    const { state, reload } = useLoaded(async (signal) => {
        const query = { keyword: keyword.value, type: type.value, status: status.value };
        const items: Memory[] = [];
        let total = 0;
        do {
            const left = Math.min(limit.value - items.length, PAGE_LIMIT);
            const page = await api.get<MemoryPage>(
                "/api/memories",
                { ...query, offset: items.length, limit: left },
                signal,
            );
            items.push(...page.items);
            total = page.items.length === 0 ? items.length : page.total;
        } while (items.length < Math.min(total, limit.value));
        return { items, total };
    }, filters);
    const { value, error } = state.value;
    const isFiltered = filters.slice(0, 3).some((each) => each !== "");
    return (
        <div class="page">
            <div class="page-body">
                <header class="page-head">
                    <h1>{t("nav.memories")}</h1>
                    <Editable explains>
                        <Button kind="primary" icon="plus" onClick={() => (edited.value = "new")}>
                            {t("memories.new")}
                        </Button>
                    </Editable>
                    <p class="soft">{t("memories.about")}</p>
                </header>
                <div class="tools">
                    <input
                        class="input search"
                        type="search"
                        aria-label={t("memories.search")}
                        placeholder={t("memories.search")}
                        value={typed.value}
                        onInput={(event) => (typed.value = event.currentTarget.value)}
                    />
                    <Filter
                        label={t("memories.type")}
                        value={type.value}
                        onValue={(next) => (type.value = next)}
                        options={[
                            ["", t("memories.type.any")],
                            ["feedback", t("memories.type.feedback")],
                            ["experience", t("memories.type.experience")],
                        ]}
                    />
                    <Filter
                        label={t("memories.status")}
                        value={status.value}
                        onValue={(next) => (status.value = next)}
                        options={[
                            ["", t("memories.status.any")],
                            ["enabled", t("memories.status.enabled")],
                            ["disabled", t("memories.status.disabled")],
                            ["superseded", t("memories.status.superseded")],
                        ]}
                    />
                </div>
                {value === null && error === null && <Loading />}
                {error !== null && <Failed error={error} onRetry={() => void reload()} />}
                {value !== null && value.items.length === 0 && (
                    <Empty icon="memory" title={t(isFiltered ? "memories.none" : "memories.empty")}>
                        {!isFiltered && <p>{t("memories.empty-why")}</p>}
                    </Empty>
                )}
                {value !== null && (
                    <ul class="items" aria-label={t("nav.memories")}>
                        {value.items.map((memory) => (
                            <Item
                                key={memory.id}
                                memory={memory}
                                onEdit={() => (edited.value = memory)}
                                onChanged={() => void reload()}
                            />
                        ))}
                    </ul>
                )}
                {value !== null && value.items.length < value.total && (
                    <div class="more">
                        <Button onClick={() => (limit.value += PAGE)}>
                            {t("memories.more", { left: value.total - value.items.length })}
                        </Button>
                    </div>
                )}
            </div>
            {edited.value !== null && (
                <Editor
                    memory={edited.value === "new" ? null : edited.value}
                    onClose={() => (edited.value = null)}
                    onSaved={() => {
                        showMessage(t("memories.saved"));
                        void reload();
                    }}
                />
            )}
        </div>
    );
}

function Item({ memory, onEdit, onChanged }: { memory: Memory; onEdit: () => void; onChanged: () => void }) {
    const path = `/api/memories/${memory.id}`;
    const done = (change: Promise<unknown>): Promise<void> => change.then(onChanged, showError);
    const remove = async (): Promise<void> => {
        const filters = { title: t("memories.delete"), text: memory.content, yes: t("action.delete") };
        if (await confirmed(filters)) await done(api.delete(path));
    };
    const isOff = memory.disabled || memory.superseded_by !== null;
    return (
        <li class={isOff ? "card item off" : "card item"} data-id={memory.id}>
            <div class="item-head">
                <p class="item-text grow">{memory.content}</p>
                <Editable>
                    <div class="row">
                        <Button
                            isSmall
                            kind="plain"
                            aria-description={memory.content}
                            onClick={() => void done(api.patch(path, { disabled: !memory.disabled }))}
                        >
                            {t(memory.disabled ? "memories.enable" : "memories.disable")}
                        </Button>
                        <IconButton
                            icon="edit"
                            isSmall
                            label={t("action.edit")}
                            about={memory.content}
                            onClick={onEdit}
                        />
                        <IconButton
                            icon="trash"
                            isSmall
                            label={t("action.delete")}
                            about={memory.content}
                            onClick={() => void remove()}
                        />
                    </div>
                </Editable>
            </div>
            <div class="item-facts">
                <span class={memory.type === "feedback" ? "badge accent" : "badge"}>
                    {t(`memories.type.${memory.type}`)}
                </span>
                {memory.disabled && <span class="badge warning">{t("memories.status.disabled")}</span>}
                {memory.superseded_by !== null && (
                    <span class="badge warning">{t("memories.replaced", { id: memory.superseded_by })}</span>
                )}
                {memory.topic && <span>{t("memories.about-topic", { topic: memory.topic })}</span>}
                {memory.skill_name && <span>{t("memories.about-tool", { tool: memory.skill_name })}</span>}
                <span title={dateTime(memory.created_at)}>
                    #{memory.id} · {ago(memory.created_at)}
                </span>
                <span title={memory.last_hit_at === null ? undefined : dateTime(memory.last_hit_at)}>
                    {t("memories.used", { count: memory.hit_count })}
                </span>
                {memory.source_session !== "" && (
                    <a href={to("conversations", bare(memory.source_session))}>{t("memories.source")}</a>
                )}
            </div>
            {memory.write_reason && <p class="soft small">{t("memories.because", { reason: memory.write_reason })}</p>}
        </li>
    );
}
