/** Loads a value and tracks its loading and error states. */
import { useSignal, type ReadonlySignal } from "@preact/signals";
import { useCallback, useEffect } from "preact/hooks";

export interface Loaded<T> {
    value: T | null;
    error: unknown;
    isLoading: boolean;
}

/** Fetches on mount and whenever one of `inputs` changes. The previous value stays until the new one arrives. */
export function useLoaded<T>(
    fetching: (signal: AbortSignal) => Promise<T>,
    inputs: readonly unknown[] = [],
): { state: ReadonlySignal<Loaded<T>>; reload: () => Promise<void> } {
    const state = useSignal<Loaded<T>>({ value: null, error: null, isLoading: true });
    const load = useCallback(async (signal: AbortSignal): Promise<void> => {
        state.value = { ...state.value, isLoading: true };
        try {
            const value = await fetching(signal);
            if (!signal.aborted) state.value = { value, error: null, isLoading: false };
        } catch (error) {
            if (!signal.aborted) state.value = { ...state.value, error, isLoading: false };
        }
    }, inputs);
    useEffect(() => {
        const abort = new AbortController();
        void load(abort.signal);
        return () => abort.abort();
    }, [load]);
    return { state, reload: () => load(new AbortController().signal) };
}
