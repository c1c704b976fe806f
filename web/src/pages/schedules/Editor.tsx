/** The form that creates or changes a scheduled task, with a preview of its next runs. */
import { useSignal } from "@preact/signals";
import { useEffect, useId } from "preact/hooks";
import { api } from "../../api/client";
import type { Agent } from "../../chat/agents";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Checkbox, Field, Select, TextArea, TextField } from "../../components/Field";
import { errorMessage } from "../../components/Toast";
import { useSaving } from "../../components/saving";
import { dateTime, language, t } from "../../i18n";
import { PRESETS, presetName, type Task } from "./task";

const PATH = "/api/scheduled-tasks";
const TYPING_MS = 250;
const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

interface Props {
    /** The server's agents. */
    agents: readonly Agent[];
    /** The task to change; null for a new one. */
    task: Task | null;
    onClose: () => void;
    onSaved: () => void;
}

export function Editor({ agents, task, onClose, onSaved }: Props) {
    const fields = useSignal({
        title: task?.title ?? "",
        prompt: task?.prompt ?? "",
        cron: task?.cron ?? PRESETS[0][0],
        timezone: task?.timezone ?? OWN_ZONE,
        expires: localOf(task?.expires_at ?? null),
        solution_id: task?.solution_id ?? "",
    });
    const isUnattended = useSignal(task?.skip_confirmations ?? false);
    const { error, save } = useSaving(onClose);
    const { title, prompt, cron, timezone, expires, solution_id } = fields.value;
    const set = (name: keyof typeof fields.value) => (value: string) =>
        void (fields.value = { ...fields.value, [name]: value });
    const submit = async (): Promise<void> => {
        const expires_at = expires === "" ? null : new Date(expires).toISOString();
        const body = {
            title,
            prompt,
            cron,
            timezone,
            expires_at,
            solution_id: solution_id || null,
            skip_confirmations: isUnattended.value,
        };
        if (task === null) await api.post(PATH, body);
        else await api.patch(`${PATH}/${task.id}`, body);
        onSaved();
    };
    return (
        <Dialog title={t(task === null ? "schedules.new" : "schedules.edit")} onClose={onClose}>
            <form class="stack" onSubmit={(event) => void save(event, submit)}>
                <TextField
                    label={t("schedules.title")}
                    value={title}
                    onValue={set("title")}
                    maxLength={200}
                    autofocus
                />
                <Select
                    label={t("chat.agent")}
                    value={solution_id}
                    onValue={set("solution_id")}
                    options={[["", t("schedules.agent-default")], ...agentOptions(agents, solution_id)]}
                />
                <TextArea label={t("schedules.prompt")} value={prompt} onValue={set("prompt")} rows={3} />
                <Select
                    label={t("schedules.when")}
                    value={presetName(cron) === undefined ? "" : cron}
                    onValue={(value) => value !== "" && set("cron")(value)}
                    options={[
                        ...PRESETS.map(([each, name]) => [each, t(name)] as const),
                        ["", t("schedules.preset.own")],
                    ]}
                />
                <div class="two">
                    <TextField
                        label={t("schedules.cron")}
                        value={cron}
                        onValue={set("cron")}
                        hint={t("schedules.cron-why")}
                    />
                    <Zone value={timezone} onValue={set("timezone")} />
                </div>
                <Preview cron={cron} timezone={timezone} />
                <TextField
                    label={t("schedules.expires")}
                    isOptional
                    type="datetime-local"
                    value={expires}
                    onValue={set("expires")}
                />
                <Checkbox
                    label={t("schedules.skip")}
                    value={isUnattended.value}
                    onValue={(value) => (isUnattended.value = value)}
                />
                {error.value !== null && (
                    <p class="note" role="alert">
                        {error.value}
                    </p>
                )}
                <div class="dialog-foot">
                    <Button onClick={onClose}>{t("action.cancel")}</Button>
                    <Button kind="primary" type="submit" disabled={title.trim() === "" || prompt.trim() === ""}>
                        {t(task === null ? "action.create" : "action.save")}
                    </Button>
                </div>
            </form>
        </Dialog>
    );
}

/** The agents to choose from. One that the server no longer has stays until another one is chosen. */
function agentOptions(agents: readonly Agent[], chosen: string): (readonly [string, string])[] {
    const all = agents.map(({ name, title }) => [name, title ?? name] as const);
    return chosen === "" || agents.some(({ name }) => name === chosen) ? all : [...all, [chosen, chosen]];
}

function Zone({ value, onValue }: { value: string; onValue: (value: string) => void }) {
    const list = useId();
    return (
        <Field label={t("schedules.zone")}>
            {(inputProps) => (
                <>
                    <input
                        {...inputProps}
                        list={list}
                        value={value}

                        autocomplete="off"
                        onInput={(event) => onValue(event.currentTarget.value)}
                    />
                    <datalist id={list}>
                        {["UTC", ...Intl.supportedValuesOf("timeZone")].map((each) => (
                            <option key={each} value={each} />
                        ))}
                    </datalist>
                </>
            )}
        </Field>
    );
}

/** The next runs, as the server computes them. */
function Preview({ cron, timezone }: { cron: string; timezone: string }) {
    const times = useSignal<readonly string[]>([]);
    const error = useSignal<string | null>(null);
    useEffect(() => {
        const abort = new AbortController();
        const settled = setTimeout(() => {
            api.get<{ occurrences: readonly string[] }>(`${PATH}/preview`, { cron, timezone }, abort.signal).then(
                (preview) => {
                    times.value = preview.occurrences;
                    error.value = null;
                },
                (fault: unknown) => {
                    if (!abort.signal.aborted) error.value = errorMessage(fault);
                },
            );
        }, TYPING_MS);
        return () => {
            clearTimeout(settled);
            abort.abort();
        };
    }, [cron, timezone]);
    return (
        <section class="schedule-preview" aria-live="polite" aria-label={t("schedules.preview")}>
            <h3 class="small">{t("schedules.preview")}</h3>
            {error.value !== null ? (
                <p class="schedule-wrong small">{error.value}</p>
            ) : (
                <ol>
                    {times.value.map((time) => (
                        <li key={time}>
                            <span>{inZone(time, timezone)}</span>
                            {timezone !== OWN_ZONE && (
                                <span class="soft">{t("schedules.yours", { when: dateTime(time) })}</span>
                            )}
                        </li>
                    ))}
                </ol>
            )}
        </section>
    );
}

function inZone(time: string, timeZone: string): string {
    try {
        const form = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" } as const;
        return new Intl.DateTimeFormat(language.value, { ...form, timeZone }).format(new Date(time));
    } catch {
        return time;
    }
}

/** A time in the format of `datetime-local`, in the user's time zone. */
function localOf(time: string | null): string {
    if (time === null) return "";
    const at = new Date(time);
    return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
