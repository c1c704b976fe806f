/** Scheduled tasks: the list, the calendar and past runs. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { useLoaded } from "../../api/loading";
import { type Agent, agents as loadAgents } from "../../chat/agents";
import { bare } from "../../chat/wire";
import { Button, IconButton } from "../../components/Button";
import { confirmed } from "../../components/Dialog";
import { Editable } from "../../components/Editable";
import { Empty, Failed } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { Loading } from "../../components/Spinner";
import { showMessage, showError } from "../../components/Toast";
import { ago, dateTime, t } from "../../i18n";
import { to } from "../../browser/router";
import { Calendar } from "./Calendar";
import { Editor } from "./Editor";
import { presetName, type Task } from "./task";
import "../pages.css";
import "./schedules.css";

interface TaskRun {
    readonly id: string;
    /** Empty if the run was missed or skipped. */
    readonly session_id: string;
    readonly status: "running" | "completed" | "failed";
    readonly error: string | null;
    readonly triggered_at: string;
    readonly finished_at: string | null;
}

const PATH = "/api/scheduled-tasks";
const TONES = { running: "accent", completed: "good", failed: "danger" } as const;

export default function Page() {
    const { state, reload } = useLoaded((signal) => api.get<readonly Task[]>(PATH, {}, signal), []);
    const agents = useLoaded(loadAgents).state.value.value ?? [];
    const edited = useSignal<Task | "new" | null>(null);
    const view = useSignal<"list" | "calendar">("list");
    const { value, error } = state.value;
    return (
        <div class="page">
            <div class="page-body">
                <header class="page-head">
                    <h1>{t("nav.schedules")}</h1>
                    <Editable explains>
                        <Button kind="primary" icon="plus" onClick={() => (edited.value = "new")}>
                            {t("schedules.new")}
                        </Button>
                    </Editable>
                    <p class="soft">{t("schedules.about")}</p>
                </header>
                <div class="tabs" role="tablist" aria-label={t("nav.schedules")}>
                    {(["list", "calendar"] as const).map((each) => (
                        <button
                            key={each}
                            type="button"
                            role="tab"
                            class="tab"
                            aria-selected={view.value === each}
                            onClick={() => (view.value = each)}
                        >
                            {t(`schedules.${each}`)}
                        </button>
                    ))}
                </div>
                {value === null && error === null && <Loading />}
                {error !== null && <Failed error={error} onRetry={() => void reload()} />}
                {value !== null && value.length === 0 && (
                    <Empty icon="clock" title={t("schedules.empty")}>
                        <p>{t("schedules.empty-why")}</p>
                    </Empty>
                )}
                {value !== null && value.length > 0 && view.value === "list" && (
                    <ul class="items" aria-label={t("nav.schedules")}>
                        {value.map((task) => (
                            <Item
                                key={task.id}
                                task={task}
                                agents={agents}
                                onEdit={() => (edited.value = task)}
                                onChanged={() => void reload()}
                            />
                        ))}
                    </ul>
                )}
                {value !== null && value.length > 0 && view.value === "calendar" && <Calendar tasks={value} />}
            </div>
            {edited.value !== null && (
                <Editor
                    agents={agents}
                    task={edited.value === "new" ? null : edited.value}
                    onClose={() => (edited.value = null)}
                    onSaved={() => {
                        showMessage(t("schedules.saved"));
                        void reload();
                    }}
                />
            )}
        </div>
    );
}

interface ItemProps {
    task: Task;
    agents: readonly Agent[];
    onEdit: () => void;
    onChanged: () => void;
}

function Item({ task, agents, onEdit, onChanged }: ItemProps) {
    const path = `${PATH}/${task.id}`;
    const isOpen = useSignal(false);
    const preset = presetName(task.cron);
    const done = (change: Promise<unknown>): Promise<void> => change.then(onChanged, showError);
    const remove = async (): Promise<void> => {
        const request = { title: t("schedules.delete"), text: t("schedules.delete-why"), yes: t("action.delete") };
        if (await confirmed(request)) await done(api.delete(path));
    };
    return (
        <li class={task.enabled ? "card item" : "card item off"} data-id={task.id}>
            <div class="item-head">
                <h2 class="grow item-text">{task.title}</h2>
                <Editable>
                    <div class="row">
                        <Button
                            isSmall
                            kind="plain"
                            aria-description={task.title}
                            onClick={() => void done(api.post(`${path}/${task.enabled ? "stop" : "start"}`))}
                        >
                            {t(task.enabled ? "schedules.stop" : "schedules.start")}
                        </Button>
                        <IconButton icon="edit" isSmall label={t("action.edit")} about={task.title} onClick={onEdit} />
                        <IconButton
                            icon="trash"
                            isSmall
                            label={t("action.delete")}
                            about={task.title}
                            onClick={() => void remove()}
                        />
                    </div>
                </Editable>
            </div>
            <p class="item-text soft schedule-prompt">{task.prompt}</p>
            <div class="item-facts">
                {preset === undefined ? <code>{task.cron}</code> : <span title={task.cron}>{t(preset)}</span>}
                <span>{task.timezone}</span>
                {task.solution_id !== null && (
                    <span class="badge">
                        {agents.find(({ name }) => name === task.solution_id)?.title ?? task.solution_id}
                    </span>
                )}
                {task.next_run_at !== null && <span>{t("schedules.next", { when: dateTime(task.next_run_at) })}</span>}
                {!task.enabled && <span class="badge warning">{t("schedules.off")}</span>}
                {task.last_run_at !== null && <span>{t("schedules.last", { when: ago(task.last_run_at) })}</span>}
                {task.expires_at !== null && <span>{t("schedules.until", { when: dateTime(task.expires_at) })}</span>}
                {task.skip_confirmations && <span class="badge warning">{t("schedules.unattended")}</span>}
            </div>
            <details class="schedule-history" onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
                <summary class="small">
                    <Icon name="chevron" />
                    {t("schedules.runs")}
                </summary>
                {isOpen.value && <Runs path={path} />}
            </details>
        </li>
    );
}

function Runs({ path }: { path: string }) {
    const { state, reload } = useLoaded((signal) => api.get<readonly TaskRun[]>(`${path}/runs`, {}, signal), [path]);
    const { value, error } = state.value;
    if (error !== null) return <Failed error={error} onRetry={() => void reload()} />;
    if (value === null) return <Loading />;
    if (value.length === 0) return <p class="soft small schedule-none">{t("schedules.no-runs")}</p>;
    return (
        <ul class="schedule-runs">
            {value.map((run) => (
                <li key={run.id}>
                    <span class={`badge ${TONES[run.status]}`}>{t(`schedules.status.${run.status}`)}</span>
                    <span>{dateTime(run.triggered_at)}</span>
                    {run.error !== null && <span class="soft">{run.error}</span>}
                    {run.session_id !== "" && (
                        <a href={to("conversations", bare(run.session_id))}>{t("schedules.session")}</a>
                    )}
                </li>
            ))}
        </ul>
    );
}
