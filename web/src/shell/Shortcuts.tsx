/** Keyboard shortcuts of the whole console, and the dialog that lists them. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Dialog } from "../components/Dialog";
import { t } from "../i18n";
import { Palette } from "./Palette";

type Open = "palette" | "help" | null;

const open = signal<Open>(null);

const COMMAND_KEY = /mac|iphone|ipad/i.test(navigator.platform) ? "⌘" : "Ctrl";
const KEYS = [
    [`${COMMAND_KEY} K`, "shortcuts.palette"],
    ["/", "shortcuts.write"],
    ["↑", "shortcuts.edit"],
    ["Enter", "shortcuts.send"],
    ["Shift Enter", "shortcuts.line"],
    ["Esc", "shortcuts.stop"],
    ["?", "shortcuts.help"],
] as const;

export const openHelp = (): void => void (open.value = "help");

/** Mounted once, in the shell. */
export function Shortcuts() {
    useEffect(() => {
        addEventListener("keydown", onKeyDown);
        return () => removeEventListener("keydown", onKeyDown);
    }, []);
    const close = (): void => {
        open.value = null;
        // The browser gives the focus back, if something had it.
        setTimeout(() => document.activeElement === document.body && focusWriting());
    };
    if (open.value === "palette") return <Palette onClose={close} onHelp={openHelp} />;
    return open.value === "help" ? <Help onClose={close} /> : null;
}

function onKeyDown(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.isComposing) return;
    const isCommand = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (isCommand && event.key.toLowerCase() === "k") {
        event.preventDefault();
        if (document.querySelector("dialog[open]") === null) open.value = "palette";
        return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event) || document.querySelector("dialog[open]"))
        return;
    if (event.key === "?") openHelp();
    else if (event.key === "/") focusWriting();
    else return;
    event.preventDefault();
}

/** Moves the focus to where this page takes words: a message, or else a search. */
function focusWriting(): void {
    const field = document.querySelector<HTMLElement>(".composer textarea") ?? document.querySelector("main input");
    if (field instanceof HTMLElement) field.focus();
}

const isTyping = (event: KeyboardEvent): boolean =>
    event.target instanceof HTMLElement &&
    (event.target.isContentEditable || event.target.matches("input, textarea, select"));

function Help({ onClose }: { onClose: () => void }) {
    return (
        <Dialog title={t("shortcuts.title")} onClose={onClose}>
            <dl class="shortcuts">
                {KEYS.map(([keys, what]) => (
                    <div key={what}>
                        <dt>
                            {keys.split(" ").map((each) => (
                                <kbd key={each}>{each}</kbd>
                            ))}
                        </dt>
                        <dd>{t(what)}</dd>
                    </div>
                ))}
            </dl>
        </Dialog>
    );
}
