import type { ComponentChildren, InputHTMLAttributes } from "preact";
import { useCallback, useId } from "preact/hooks";
import { t } from "../i18n";

interface Frame {
    label: string;
    hint?: ComponentChildren | undefined;
    error?: string | null | undefined;
    isOptional?: boolean | undefined;
}

interface InputProps {
    id: string;
    class: string;
    dir: "auto";
    "aria-describedby"?: string;
    "aria-invalid"?: true;
}

/** A form field with its label, hint and error, associated for screen readers. */
export function Field({
    label,
    hint,
    error,
    isOptional,
    children,
}: Frame & { children: (inputProps: InputProps) => ComponentChildren }) {
    const id = useId();
    const hintId = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
    const inputProps: InputProps = { id, class: "input", dir: "auto", ...(hintId && { "aria-describedby": hintId }) };
    if (error) inputProps["aria-invalid"] = true;
    return (
        <div class="field">
            <label for={id}>
                {label}
                {isOptional && <span class="soft"> · {t("field.optional")}</span>}
            </label>
            {children(inputProps)}
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

interface ValueProps extends Frame {
    value: string;
    onValue: (value: string) => void;
    disabled?: boolean;
    required?: boolean;
    autofocus?: boolean;
}

interface Text extends ValueProps {
    placeholder?: string;
    maxLength?: number;
}

type TextProps = Text & { type?: "text" | "password" | "search" | "number" | "date" | "datetime-local"; list?: string };

export function TextField({ label, hint, error, isOptional, onValue, autofocus = false, ...rest }: TextProps) {
    // The attribute alone works only while the page has no focus yet; dialogs look for it when they open.
    const focused = useCallback((field: HTMLInputElement | null) => void (autofocus && field?.focus()), []);
    return (
        <Field {...{ label, hint, error, isOptional }}>
            {(inputProps) => (
                <input
                    ref={focused}
                    autofocus={autofocus}
                    autocomplete="off"
                    {...(rest as InputHTMLAttributes<HTMLInputElement>)}
                    {...inputProps}
                    onInput={(event) => onValue(event.currentTarget.value)}
                />
            )}
        </Field>
    );
}

export function TextArea({ label, hint, error, isOptional, onValue, ...rest }: Text & { rows?: number }) {
    return (
        <Field {...{ label, hint, error, isOptional }}>
            {(inputProps) => (
                <textarea rows={4} {...rest} {...inputProps} onInput={(event) => onValue(event.currentTarget.value)} />
            )}
        </Field>
    );
}

type SelectProps = ValueProps & { options: readonly (readonly [value: string, label: string])[] };

export function Select({ label, hint, error, isOptional, onValue, options, value, ...rest }: SelectProps) {
    return (
        <Field {...{ label, hint, error, isOptional }}>
            {(inputProps) => (
                <select {...rest} {...inputProps} onChange={(event) => onValue(event.currentTarget.value)}>
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
