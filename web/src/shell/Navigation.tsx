import { useSignal } from "@preact/signals";
import { key } from "../api/key";
import { signOut } from "../api/login";
import { Button, IconButton } from "../components/Button";
import { Icon, type IconName } from "../components/Icon";
import { choose, language, t } from "../i18n";
import { address, go, to } from "../browser/router";
import { openHelp } from "./Shortcuts";
import { ICONS, offeredPages } from "./pages";
import { nextTheme, theme, type Theme } from "./theme";

const THEMES: Record<Theme, IconName> = { auto: "theme", light: "sun", dark: "moon" };

/** Returns to the start page and signs out. */
function leave(): void {
    go("conversations");
    signOut();
}

export function Navigation() {
    const isOpen = useSignal(false);
    const here = address.value.place;
    return (
        <header class={isOpen.value ? "rail open" : "rail"}>
            <a class="brand" href={to("conversations")} aria-label={t("app.home")}>
                <img src="./icon.svg" alt="" />
                Dragoman
            </a>
            <div class="rail-toggle">
                <IconButton
                    icon={isOpen.value ? "close" : "menu"}
                    label={t("app.menu")}
                    aria-expanded={isOpen.value}
                    onClick={() => (isOpen.value = !isOpen.value)}
                />
            </div>
            <nav aria-label={t("nav.label")} onClick={() => (isOpen.value = false)}>
                {offeredPages().map((place) => (
                    <a key={place} class="place" href={to(place)} aria-current={place === here ? "page" : undefined}>
                        <Icon name={ICONS[place]} />
                        {t(`nav.${place}`)}
                    </a>
                ))}
            </nav>
            <div class="rail-foot">
                <IconButton
                    icon={THEMES[theme.value]}
                    label={t("theme.label", { theme: t(`theme.${theme.value}`) })}
                    onClick={nextTheme}
                />
                <Button
                    kind="plain"
                    aria-label={t("language.label")}
                    onClick={() => choose(language.value === "en" ? "zh" : "en")}
                >
                    {t("language.switch")}
                </Button>
                <IconButton icon="help" label={t("shortcuts.title")} onClick={openHelp} />
                {key.value !== null && <IconButton icon="leave" label={t("key.forget")} onClick={leave} />}
            </div>
        </header>
    );
}
