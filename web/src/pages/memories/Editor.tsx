/** The form that creates or changes a memory. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Select, TextArea, TextField } from "../../components/Field";
import { useSaving } from "../../components/saving";
import { t } from "../../i18n";
import type { Memory } from "./memory";

const MAX_LENGTH = 500;

interface Props {
    /** The memory to change; null for a new one. */
    memory: Memory | null;
    onClose: () => void;
    onSaved: () => void;
}

export function Editor({ memory, onClose, onSaved }: Props) {
    const texts = useSignal({
        content: memory?.content ?? "",
        type: memory?.type ?? "feedback",
        topic: memory?.topic ?? "",
        skill_name: memory?.skill_name ?? "",
        write_reason: memory?.write_reason ?? "",
    });
    const { error, save } = useSaving(onClose);
    const set = (name: keyof typeof texts.value) => (value: string) =>
        void (texts.value = { ...texts.value, [name]: value });
    const { content, type, topic, skill_name, write_reason } = texts.value;
    const length = [...content].length;
    const submit = async (): Promise<void> => {
        // An empty text clears a field in an update and is left out on creation.
        if (memory !== null) await api.put(`/api/memories/${memory.id}`, texts.value);
        else await api.post("/api/memories", withoutEmpty(texts.value));
        onSaved();
    };
    return (
        <Dialog title={t(memory === null ? "memories.new" : "memories.edit")} onClose={onClose}>
            <form class="stack" onSubmit={(event) => void save(event, submit)}>
                <TextArea
                    label={t("memories.content")}
                    value={content}
                    onValue={set("content")}
                    hint={t("memories.left", { left: MAX_LENGTH - length })}
                    error={error.value}
                    autofocus
                />
                <div class="two">
                    <Select
                        label={t("memories.type")}
                        value={type}
                        onValue={set("type")}
                        hint={t(type === "feedback" ? "memories.feedback-why" : "memories.experience-why")}
                        options={[
                            ["feedback", t("memories.type.feedback")],
                            ["experience", t("memories.type.experience")],
                        ]}
                    />
                    <TextField label={t("memories.topic")} isOptional value={topic} onValue={set("topic")} />
                </div>
                <TextField
                    label={t("memories.reason")}
                    isOptional
                    value={write_reason}
                    onValue={set("write_reason")}
                    hint={t("memories.reason-why")}
                />
                <TextField
                    label={t("memories.tool")}
                    isOptional
                    value={skill_name}
                    onValue={set("skill_name")}
                    hint={t("memories.tool-why")}
                />
                <div class="dialog-foot">
                    <Button onClick={onClose}>{t("action.cancel")}</Button>
                    <Button kind="primary" type="submit" disabled={content.trim() === "" || length > MAX_LENGTH}>
                        {t(memory === null ? "action.create" : "action.save")}
                    </Button>
                </div>
            </form>
        </Dialog>
    );
}

function withoutEmpty(texts: Record<string, string>): Record<string, string> {
    return Object.fromEntries(Object.entries(texts).filter(([, value]) => value.trim() !== ""));
}
