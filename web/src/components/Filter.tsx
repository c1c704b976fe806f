/** A choice that narrows a list. */

/** Values with their labels. */
export type Choices = readonly (readonly [value: string, label: string])[];

export function Filter(props: { label: string; value: string; onValue: (value: string) => void; options: Choices }) {
    return (
        <select
            class="input filter"
            aria-label={props.label}
            onChange={(event) => props.onValue(event.currentTarget.value)}
        >
            {props.options.map(([value, label]) => (
                <option key={value} value={value} selected={value === props.value}>
                    {label}
                </option>
            ))}
        </select>
    );
}
