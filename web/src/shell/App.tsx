import { useEffect, useRef } from "preact/hooks";
import { Confirmation } from "../components/Dialog";
import { Toasts } from "../components/Toast";
import { t } from "../i18n";
import { KeyGate } from "./KeyGate";
import { Navigation } from "./Navigation";
import { later } from "./Part";
import { Shortcuts } from "./Shortcuts";
import { keepPageOnDrop } from "../browser/files";
import { address, type Place } from "../browser/router";

const PARTS: Record<Place, ReturnType<typeof later>> = {
    conversations: later(() => import("../pages/conversations")),
    lens: later(() => import("../pages/lens")),
    memories: later(() => import("../pages/memories")),
    keys: later(() => import("../pages/keys")),
    schedules: later(() => import("../pages/schedules")),
    attachments: later(() => import("../pages/attachments")),
    health: later(() => import("../pages/health")),
    audit: later(() => import("../pages/audit")),
    run: later(() => import("../pages/run")),
    share: later(() => import("../pages/share")),
};

export function App() {
    const { place, id } = address.value;
    const Part = PARTS[place];
    const name = t(`nav.${place}`);
    useEffect(keepPageOnDrop, []);
    const isFirst = useRef(true);
    useEffect(() => void (document.title = `${name} · Dragoman`), [name, id]);
    useEffect(() => {
        // What had the focus may be gone with the previous page; Tab would begin at the navigation again.
        if (!isFirst.current && document.activeElement === document.body) focusMain();
        isFirst.current = false;
    }, [place, id]);
    return (
        <>
            <a class="skip" href="#main" onClick={skip}>
                {t("app.skip")}
            </a>
            {place === "share" ? (
                <main class="main" id="main" tabIndex={-1}>
                    <Part key={id} id={id} />
                </main>
            ) : (
                <div class="shell">
                    <Navigation />
                    <main class="main" id="main" tabIndex={-1}>
                        <KeyGate>
                            <Part key={place} id={id} />
                        </KeyGate>
                    </main>
                </div>
            )}
            <Confirmation />
            <Toasts />
            <Shortcuts />
        </>
    );
}

/** The address after `#` selects the page, so this link only moves the focus. */
function skip(event: Event): void {
    event.preventDefault();
    focusMain();
}

const focusMain = (): void => document.getElementById("main")?.focus();
