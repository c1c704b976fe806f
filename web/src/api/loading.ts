/** Loads a value and tracks its loading and error states. */
import { useSignal, type ReadonlySignal } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";
import { Latest } from "./latest";

export interface Loaded<T> {
    value: T | null;
    error: unknown;
    isLoading: boolean;
}

/**
 * Fetches on mount and whenever one of `inputs` changes. The previous value stays until the new one arrives. An answer
 * that comes after the answer to a later request is older, and is not shown.
 */
export function useLoaded<T>(
    fetching: (signal: AbortSignal) => Promise<T>,
    inputs: readonly unknown[] = [],
): { state: ReadonlySignal<Loaded<T>>; reload: () => Promise<void> } {
    const state = useSignal<Loaded<T>>({ value: null, error: null, isLoading: true });
    const requests = useRef({ abort: new AbortController(), latest: new Latest() }).current;
    const reload = useCallback(async (): Promise<void> => {
        const { signal } = requests.abort;
        const request = requests.latest.begin();
        const show = (loaded: { value: T | null; error: unknown }): void => {
            if (signal.aborted || !request.settle()) return;
            state.value = { ...loaded, isLoading: requests.latest.isPending };
        };
        state.value = { ...state.value, isLoading: true };
        await fetching(signal).then(
            (value) => show({ value, error: null }),
            (error: unknown) => show({ value: state.value.value, error }),
        );
    }, inputs);
    useEffect(() => {
        requests.abort = new AbortController();
        void reload();
        return () => requests.abort.abort();
    }, [reload]);
    return { state, reload };
}
