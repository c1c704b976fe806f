/** The command palette: pages, conversations and what can be done here, found by typing. */
import { useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import { api } from "../api/client";
import { isReadOnly } from "../api/key";
import { type Command, offeredCommands } from "../browser/commands";
import { go } from "../browser/router";
import { bare, type SessionPage } from "../chat/wire";
import { useModal } from "../components/Dialog";
import { Icon, type IconName } from "../components/Icon";
import { choose, language, t } from "../i18n";
import { ICONS, offeredPages } from "./pages";
import { nextTheme } from "./theme";

const SEARCH_DELAY_MS = 150;
const MAX_CONVERSATIONS = 8;

interface Props {
    onClose: () => void;
    onHelp: () => void;
}

export function Palette({ onClose, onHelp }: Props) {
    const modal = useModal(onClose);
    const list = useRef<HTMLUListElement>(null);
    const id = useId();
    const query = useSignal("");
    const at = useSignal(0);
    const conversations = useConversations(query.value);
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [...offeredCommands(), ...general(onHelp)].filter(({ label }) =>
        words.every((word) => label.toLowerCase().includes(word)),
    );
    const all = [...found, ...conversations];
    const selected = Math.min(at.value, all.length - 1);
    useEffect(() => list.current?.children[selected]?.scrollIntoView({ block: "nearest" }), [selected]);
    const run = (command: Command | undefined): void => {
        if (command === undefined) return;
        modal.ref.current?.close(); // gives the focus back, before the command moves it
        onClose();
        command.run();
    };
    const onKeyDown = (event: KeyboardEvent): void => {
        const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
        if (event.isComposing || (step === 0 && event.key !== "Enter")) return;
        event.preventDefault();
        if (step === 0) run(all[selected]);
        else if (all.length > 0) at.value = (selected + step + all.length) % all.length;
    };
    return (
        <dialog {...modal} class="dialog palette" aria-label={t("palette.title")}>
            <input
                type="text"
                role="combobox"
                class="palette-field"
                aria-label={t("palette.title")}
                aria-expanded="true"
                aria-controls={id}
                aria-activedescendant={all.length > 0 ? `${id}-${selected}` : undefined}
                placeholder={t("palette.placeholder")}
                value={query.value}
                onKeyDown={onKeyDown}
                onInput={(event) => {
                    query.value = event.currentTarget.value;
                    at.value = 0;
                }}
            />
            <ul ref={list} id={id} role="listbox" aria-label={t("palette.title")} class="palette-list">
                {all.map((command, index) => (
                    <li
                        key={command.id}
                        id={`${id}-${index}`}
                        role="option"
                        aria-selected={index === selected}
                        onPointerMove={() => (at.value = index)}
                        onClick={() => run(command)}
                    >
                        <Icon name={command.icon as IconName} />
                        <span>{command.label}</span>
                    </li>
                ))}
            </ul>
            {all.length === 0 && <p class="palette-none soft">{t("palette.none")}</p>}
        </dialog>
    );
}

function general(onHelp: () => void): Command<IconName>[] {
    const start: Command<IconName> = {
        id: "new",
        icon: "plus",
        label: t("chat.new"),
        run: () => go("conversations"),
    };
    return [
        ...(isReadOnly() ? [] : [start]),
        ...offeredPages().map((place) => ({
            id: `page ${place}`,
            icon: ICONS[place],
            label: t("palette.go", { page: t(`nav.${place}`) }),
            run: () => go(place),
        })),
        { id: "theme", icon: "theme", label: t("palette.theme"), run: nextTheme },
        {
            id: "language",
            icon: "chat",
            label: t("language.label"),
            run: () => choose(language.value === "en" ? "zh" : "en"),
        },
        { id: "help", icon: "help", label: t("shortcuts.title"), run: onHelp },
    ];
}

/** Conversations with that text in their title or messages; without a text, the newest. */
function useConversations(query: string): readonly Command<IconName>[] {
    const found = useSignal<readonly Command<IconName>[]>([]);
    useEffect(() => {
        const abort = new AbortController();
        const search = async (): Promise<void> => {
            const page = await api.get<SessionPage>(
                "/api/sessions",
                { q: query.trim(), limit: MAX_CONVERSATIONS },
                abort.signal,
            );
            found.value = page.items.map(({ id, intent }) => ({
                id: `session ${id}`,
                icon: "chat",
                label: intent || t("chat.untitled"),
                run: () => go("conversations", bare(id)),
            }));
        };
        // Without conversations, as without a connection, the commands remain.
        const timer = setTimeout(() => void search().catch(() => undefined), query === "" ? 0 : SEARCH_DELAY_MS);
        return () => {
            clearTimeout(timer);
            abort.abort();
        };
    }, [query]);
    return found.value;
}
