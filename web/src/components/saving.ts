/** Saves what a dialog was filled in with. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { errorMessage, showError } from "./Toast";

/**
 * Sends one request at a time, and closes the dialog when it succeeds. If the user has closed the dialog meanwhile, the
 * answer closes no other one, and an error is still shown.
 */
export function useSaving(onClose: () => void) {
    const error = useSignal<string | null>(null);
    const isSaving = useSignal(false);
    const isOpen = useRef(true);
    useEffect(() => () => void (isOpen.current = false), []);
    const save = async (event: Event, request: () => Promise<void>): Promise<void> => {
        event.preventDefault();
        if (isSaving.value) return;
        isSaving.value = true;
        try {
            await request();
            if (isOpen.current) onClose();
        } catch (fault) {
            if (isOpen.current) error.value = errorMessage(fault);
            else showError(fault);
        } finally {
            isSaving.value = false;
        }
    };
    return { error, save };
}
