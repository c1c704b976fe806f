/** Forms for what an agent waits for: permissions and questions. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId, useRef } from "preact/hooks";
import { Button } from "../components/Button";
import { TextField } from "../components/Field";
import { showError } from "../components/Toast";
import { isFocusFree } from "../browser/focus";
import { t } from "../i18n";
import { focusComposer } from "./Composer";
import { useConversation } from "./context";
import { ALLOW_ALWAYS, ALLOW_ONCE, answerOf, type Chosen, decision, DENY, isAnswered, questionsOf } from "./questions";
import type { Answer, Question, ToolCall } from "./wire";

/** Sends an answer once. The form is disabled until the server has accepted or rejected it, and then goes away. */
function useAnswering() {
    const conversation = useConversation();
    const isSent = useSignal(false);
    const form = useRef<HTMLFormElement>(null);
    const answer = async (reply: Answer): Promise<void> => {
        isSent.value = true;
        try {
            await conversation.answer(reply);
            focusNext(form.current);
        } catch (error) {
            isSent.value = false;
            showError(error);
        }
    };
    return { form, isSent, answer };
}

/** Moves the focus from an answered form to the next one, or else to the composer. */
function focusNext(form: HTMLFormElement | null): void {
    if (!isFocusFree(form)) return;
    const forms = [...document.querySelectorAll<HTMLFormElement>("form.asking")];
    const next = forms.find((each) => each !== form && each.querySelector("button:enabled, input:enabled"));
    const control = next?.querySelector<HTMLElement>("button:enabled, input:enabled");
    if (control) control.focus();
    else focusComposer();
}

export function Permission({ id, tool, isRepeat }: { id: string; tool: string; isRepeat: boolean }) {
    const { form, isSent, answer } = useAnswering();
    const isDenying = useSignal(false);
    const reason = useSignal("");
    const cancel = (): void => {
        isDenying.value = false;
        // The buttons are back with the next rendering.
        requestAnimationFrame(() => form.current?.querySelector<HTMLElement>("button.danger")?.focus());
    };
    const decide = (choice: number): void => void answer(decision(id, choice, reason.value));
    const question = t(isRepeat ? "chat.repeat-question" : "chat.allow-question", { tool });
    return (
        <form
            ref={form}
            class="asking"
            aria-label={question}
            onKeyDown={(event) => {
                if (event.key !== "Escape" || event.isComposing || !isDenying.value) return;
                event.preventDefault();
                cancel();
            }}
            onSubmit={(event) => {
                event.preventDefault();
                if (isDenying.value) decide(DENY);
            }}
        >
            <p class="asking-title">{question}</p>
            {isDenying.value ? (
                <>
                    <TextField
                        label={t("chat.deny-reason")}
                        isOptional
                        autofocus
                        value={reason.value}
                        onValue={(value) => (reason.value = value)}
                    />
                    <div class="row wrap">
                        <Button kind="danger" type="submit" disabled={isSent.value}>
                            {t("chat.deny")}
                        </Button>
                        <Button kind="plain" onClick={cancel}>
                            {t("action.cancel")}
                        </Button>
                    </div>
                </>
            ) : (
                <div class="row wrap">
                    <Button kind="primary" disabled={isSent.value} onClick={() => decide(ALLOW_ONCE)}>
                        {t(isRepeat ? "chat.run-again" : "chat.allow-once")}
                    </Button>
                    {!isRepeat && (
                        <Button disabled={isSent.value} onClick={() => decide(ALLOW_ALWAYS)}>
                            {t("chat.allow-always")}
                        </Button>
                    )}
                    <Button kind="danger" disabled={isSent.value} onClick={() => (isDenying.value = true)}>
                        {t("chat.deny-open")}
                    </Button>
                </div>
            )}
        </form>
    );
}

export function QuestionForm({ call }: { call: ToolCall }) {
    const { form, isSent, answer } = useAnswering();
    const questions = questionsOf(call);
    const chosen = useSignal<readonly Chosen[]>(questions.map(() => ({ places: new Set(), text: "" })));
    const set = (index: number, next: Chosen): void =>
        void (chosen.value = chosen.value.map((each, at) => (at === index ? next : each)));
    return (
        <form
            ref={form}
            class="asking"
            onSubmit={(event) => {
                event.preventDefault();
                void answer(answerOf(call, chosen.value));
            }}
        >
            {questions.map((each, index) => (
                <OneQuestion
                    key={index}
                    question={each}
                    chosen={chosen.value[index] ?? { places: new Set(), text: "" }}
                    onChosen={(next) => set(index, next)}
                />
            ))}
            <div>
                <Button kind="primary" type="submit" disabled={isSent.value || !chosen.value.every(isAnswered)}>
                    {t("chat.answer")}
                </Button>
            </div>
        </form>
    );
}

interface OneProps {
    question: Question;
    chosen: Chosen;
    onChosen: (next: Chosen) => void;
}

function OneQuestion({ question, chosen, onChosen }: OneProps) {
    const group = useId();
    const options = question.options ?? [];
    const choose = (place: number, isOn: boolean): void => {
        const places = new Set(question.multiSelect ? chosen.places : []);
        if (isOn) places.add(place);
        else places.delete(place);
        // Only one answer is allowed: choosing an option clears the text.
        onChosen({ places, text: question.multiSelect ? chosen.text : "" });
    };
    const write = (text: string): void =>
        onChosen({ places: question.multiSelect || text === "" ? chosen.places : new Set(), text });
    return (
        <fieldset class="question" dir="auto">
            <legend>
                {question.header && <span class="badge accent">{question.header}</span>}
                <span>{question.question}</span>
            </legend>
            {question.multiSelect && <p class="soft small">{t("chat.several")}</p>}
            {options.map((option, place) => (
                <Choice
                    key={place}
                    group={group}
                    isMany={question.multiSelect === true}
                    isOn={chosen.places.has(place)}
                    onChoose={(isOn) => choose(place, isOn)}
                >
                    {option.label}
                    {option.description && <span class="soft small">{option.description}</span>}
                </Choice>
            ))}
            <TextField
                label={t(options.length > 0 ? "chat.other-answer" : "chat.own-answer")}
                value={chosen.text}
                onValue={write}
            />
        </fieldset>
    );
}

interface ChoiceProps {
    group: string;
    isMany: boolean;
    isOn: boolean;
    onChoose: (isOn: boolean) => void;
    children: ComponentChildren;
}

function Choice({ group, isMany, isOn, onChoose, children }: ChoiceProps) {
    return (
        <label class={isOn ? "choice on" : "choice"}>
            <input
                type={isMany ? "checkbox" : "radio"}
                name={group}
                checked={isOn}
                onChange={(event) => onChoose(event.currentTarget.checked)}
            />
            <span class="choice-text">{children}</span>
        </label>
    );
}
