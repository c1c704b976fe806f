import type { ComponentChildren, InputHTMLAttributes } from "preact";
import { useId } from "preact/hooks";
import { t } from "../i18n";

interface Frame {
    label: string;
    hint?: ComponentChildren | undefined;
    error?: string | null | undefined;
    isOptional?: boolean | undefined;
}

interface Tied {
    id: string;
    class: string;
    "aria-describedby"?: string;
    "aria-invalid"?: true;
}

/** A label, what it labels, a hint and what is wrong, tied together for those who listen. */
export function Field({
    label,
    hint,
    error,
    isOptional,
    children,
}: Frame & { children: (tied: Tied) => ComponentChildren }) {
    const id = useId();
    const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
    const tied: Tied = { id, class: "input", ...(described && { "aria-describedby": described }) };
    if (error) tied["aria-invalid"] = true;
    return (
        <div class="field">
            <label for={id}>
                {label}
                {isOptional && <span class="soft"> · {t("field.optional")}</span>}
            </label>
            {children(tied)}
            {hint && (
                <div class="hint" id={`${id}-hint`}>
                    {hint}
                </div>
            )}
            {error && (
                <div class="error" id={`${id}-error`} role="alert">
                    {error}
                </div>
            )}
        </div>
    );
}

interface Entered extends Frame {
    value: string;
    onValue: (value: string) => void;
    disabled?: boolean;
    required?: boolean;
    autofocus?: boolean;
}

interface Text extends Entered {
    placeholder?: string;
    maxLength?: number;
}

type TextProps = Text & { type?: "text" | "password" | "search" | "number" | "date" | "datetime-local"; list?: string };

export function TextField({ label, hint, error, isOptional, onValue, ...rest }: TextProps) {
    return (
        <Field {...{ label, hint, error, isOptional }}>
            {(tied) => (
                <input
                    autocomplete="off"
                    {...(rest as InputHTMLAttributes<HTMLInputElement>)}
                    {...tied}
                    onInput={(event) => onValue(event.currentTarget.value)}
                />
            )}
        </Field>
    );
}

export function TextArea({ label, hint, error, isOptional, onValue, ...rest }: Text & { rows?: number }) {
    return (
        <Field {...{ label, hint, error, isOptional }}>
            {(tied) => (
                <textarea rows={4} {...rest} {...tied} onInput={(event) => onValue(event.currentTarget.value)} />
            )}
        </Field>
    );
}

type SelectProps = Entered & { options: readonly (readonly [value: string, label: string])[] };

export function Select({ label, hint, error, isOptional, onValue, options, value, ...rest }: SelectProps) {
    return (
        <Field {...{ label, hint, error, isOptional }}>
            {(tied) => (
                <select {...rest} {...tied} onChange={(event) => onValue(event.currentTarget.value)}>
                    {options.map(([each, shown]) => (
                        <option key={each} value={each} selected={each === value}>
                            {shown}
                        </option>
                    ))}
                </select>
            )}
        </Field>
    );
}

export function Checkbox({
    label,
    value,
    onValue,
}: {
    label: ComponentChildren;
    value: boolean;
    onValue: (value: boolean) => void;
}) {
    return (
        <label class="check">
            <input type="checkbox" checked={value} onChange={(e) => onValue(e.currentTarget.checked)} />
            <span>{label}</span>
        </label>
    );
}
