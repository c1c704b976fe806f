/** The header of a conversation: its title and menu. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Button, IconButton } from "../components/Button";
import { confirmed, Dialog } from "../components/Dialog";
import { TextField } from "../components/Field";
import type { IconName } from "../components/Icon";
import { Icon } from "../components/Icon";
import { showMessage, showError } from "../components/Toast";
import { language, t } from "../i18n";
import { useCommands } from "../browser/commands";
import { address, go, to } from "../browser/router";
import { useConversation } from "./context";
import { sessions } from "./list";
import { Share } from "./Share";
import { isConnected } from "./socket";

const TITLE = 200;

export function Header() {
    const conversation = useConversation();
    const isRenaming = useSignal(false);
    const isSharing = useSignal(false);
    const detail = conversation.detail.value;
    useEffect(() => {
        if (detail !== null) document.title = `${detail.intent || t("chat.untitled")} · Dragoman`;
    }, [detail?.intent]);
    const doing = (work: Promise<unknown>): void => void work.catch(showError);
    const remove = async (): Promise<void> => {
        const title = detail?.intent || t("chat.untitled");
        if (
            !(await confirmed({
                title: t("chat.delete"),
                text: t("chat.delete-confirm", { title }),
                yes: t("action.delete"),
            }))
        )
            return;
        await sessions.remove(conversation.id);
        if (address.peek().id === conversation.id) go("conversations");
    };
    const compact = async (): Promise<void> => {
        await conversation.compact();
        void sessions.refresh(); // no event says that the conversation is now the newest one
        showMessage(t("chat.compact-done"));
    };
    const isWritable = detail !== null && conversation.isWritable.value;
    const items: readonly MenuItem[] = [
        ["edit", t("chat.rename"), () => (isRenaming.value = true)],
        [
            "pin",
            t(detail?.is_pinned ? "chat.unpin" : "chat.pin"),
            () => doing(conversation.change("/pin", { pinned: !detail?.is_pinned })),
        ],
        [
            "memory",
            t(detail?.memory_enabled ? "chat.memory-off" : "chat.memory-on"),
            () => doing(conversation.change("/memory", { memory_enabled: !detail?.memory_enabled })),
        ],
        ["share", t("chat.share"), () => (isSharing.value = true)],
        ["fold", t("chat.compact"), () => doing(compact())],
        ["trash", t("chat.delete"), () => void remove().catch(showError)],
    ];
    useCommands(
        [
            ...(isWritable ? items : []).map(([icon, label, run]) => ({ id: `chat ${icon}`, icon, label, run })),
            {
                id: "chat lens",
                icon: "lens",
                label: t("chat.open-lens"),
                run: () => go("lens", conversation.id),
            },
        ],
        [conversation, detail, isWritable, language.value],
    );
    return (
        <header class="chat-head">
            <a class="button plain icon-only back" href={to("conversations")} aria-label={t("chat.back")}>
                <Icon name="back" />
            </a>
            <h1 class="chat-title" dir="auto">
                {detail === null ? "" : detail.intent || t("chat.untitled")}
            </h1>
            {!isConnected.value && (
                <span class="badge warning" role="status">
                    {t("chat.offline")}
                </span>
            )}
            {detail?.solution && <span class="badge chat-agent">{detail.solution.id}</span>}
            <a
                class="button plain icon-only"
                href={to("lens", conversation.id)}
                aria-label={t("chat.open-lens")}
                title={t("chat.open-lens")}
            >
                <Icon name="lens" />
            </a>
            {isWritable && <Menu items={items} />}
            {isSharing.value && <Share onClose={() => (isSharing.value = false)} />}
            {isRenaming.value && (
                <Rename
                    title={detail?.intent ?? ""}
                    onClose={() => (isRenaming.value = false)}
                    onTitle={(intent) => doing(conversation.change("", { intent }))}
                />
            )}
        </header>
    );
}

type MenuItem = readonly [icon: IconName, label: string, act: () => void];

/** A drop-down menu. Arrow keys move the focus, Escape closes it. */
function Menu({ items }: { items: readonly MenuItem[] }) {
    const isOpen = useSignal(false);
    const frame = useRef<HTMLDivElement>(null);
    useEffect(() => {
        if (!isOpen.value) return;
        const entries = (): HTMLElement[] => [
            ...(frame.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? []),
        ];
        entries()[0]?.focus();
        const closeMenu = (event: Event): void => {
            if (!frame.current?.contains(event.target as Node)) isOpen.value = false;
        };
        const move = (event: KeyboardEvent): void => {
            const all = entries();
            const here = all.indexOf(document.activeElement as HTMLElement);
            const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
            if (step !== 0) {
                event.preventDefault();
                all[(here + step + all.length) % all.length]?.focus();
            } else if (event.key === "Escape" || event.key === "Tab") {
                isOpen.value = false;
                frame.current?.querySelector("button")?.focus();
            }
        };
        addEventListener("pointerdown", closeMenu);
        addEventListener("keydown", move);
        return () => {
            removeEventListener("pointerdown", closeMenu);
            removeEventListener("keydown", move);
        };
    }, [isOpen.value]);
    return (
        <div class="menu" ref={frame}>
            <IconButton
                icon="more"
                label={t("chat.actions")}
                aria-haspopup="menu"
                aria-expanded={isOpen.value}
                onClick={() => (isOpen.value = !isOpen.value)}
            />
            {isOpen.value && (
                <div class="menu-list" role="menu" aria-label={t("chat.actions")}>
                    {items.map(([icon, label, act]) => (
                        <button
                            key={icon}
                            type="button"
                            role="menuitem"
                            tabIndex={-1}
                            onClick={() => {
                                isOpen.value = false;
                                act();
                            }}
                        >
                            <Icon name={icon} />
                            {label}
                        </button>
                    ))}
                </div>
            )}
        </div>
    );
}

function Rename({ title, onClose, onTitle }: { title: string; onClose: () => void; onTitle: (title: string) => void }) {
    const next = useSignal(title);
    return (
        <Dialog title={t("chat.rename")} onClose={onClose}>
            <form
                class="stack"
                onSubmit={(event) => {
                    event.preventDefault();
                    onTitle(next.value.trim());
                    onClose();
                }}
            >
                <TextField
                    label={t("chat.title")}
                    value={next.value}
                    maxLength={TITLE}
                    autofocus
                    onValue={(value) => (next.value = value)}
                />
                <div class="dialog-foot">
                    <Button onClick={onClose}>{t("action.cancel")}</Button>
                    <Button kind="primary" type="submit" disabled={next.value.trim() === ""}>
                        {t("action.save")}
                    </Button>
                </div>
            </form>
        </Dialog>
    );
}
