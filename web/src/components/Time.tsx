import { clock, dateTime } from "../i18n";

/** When something happened: the time of today, or a date and a time. */
export function Time({ at }: { at: string | null | undefined }) {
    if (!at) return null;
    return (
        <time dateTime={at} title={dateTime(at)}>
            {clock(at)}
        </time>
    );
}
