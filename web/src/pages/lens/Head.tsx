/** The header of the lens: session, run and view. */
import type { Signal } from "@preact/signals";
import { useId } from "preact/hooks";
import { bare } from "../../chat/wire";
import { IconButton, Button } from "../../components/Button";
import { Checkbox } from "../../components/Field";
import { dateTime, t } from "../../i18n";
import { toggle } from "../../lens/choice";
import { NAMES } from "../../lens/adapters";
import { oneLine, type Protocol, PROTOCOLS } from "../../lens/frames";
import type { SessionMonitor } from "../../lens/monitor";
import { go, to } from "../../browser/router";
import type { SessionItem } from "./session";

interface Props {
    monitor: SessionMonitor;
    protocols: readonly Protocol[];
    session: SessionItem;
    sessions: readonly SessionItem[];
    isCollapsed: Signal<boolean>;
    view: Signal<View>;
}

export type View = "events" | "history";
const VIEWS: readonly View[] = ["events", "history"];

export function Head({ monitor, protocols, session, sessions, isCollapsed, view }: Props) {
    const id = useId();
    return (
        <header class="lens-head">
            <div class="lens-title">
                <h1>{t("nav.lens")}</h1>
                <Choice protocols={protocols} />
                <p class="soft small">{t("lens.about")}</p>
            </div>
            <div class="row wrap lens-choices">
                <label class="visually-hidden" for={id}>
                    {t("lens.session")}
                </label>
                <select
                    id={id}
                    class="input lens-session"
                    onChange={(event) => go("lens", bare(event.currentTarget.value))}
                >
                    {sessions.map((each) => (
                        <option key={each.id} value={each.id} selected={each.id === session.id}>
                            {oneLine(each.intent) || `${t("lens.untitled")} · ${dateTime(each.created_at)}`}
                        </option>
                    ))}
                </select>
                <Runs monitor={monitor} />
                <div class="lens-views row" role="group" aria-label={t("lens.view")}>
                    {VIEWS.map((each) => (
                        <Button
                            key={each}
                            isSmall
                            kind={view.value === each ? "normal" : "plain"}
                            aria-pressed={view.value === each}
                            onClick={() => (view.value = each)}
                        >
                            {t(`lens.view.${each}`)}
                        </Button>
                    ))}
                </div>
                {view.value === "events" && (
                    <Checkbox
                        label={t("lens.fold")}
                        value={isCollapsed.value}
                        onValue={(value) => (isCollapsed.value = value)}
                    />
                )}
                <a class="small" href={to("conversations", bare(session.id))}>
                    {t("lens.conversation")}
                </a>
            </div>
        </header>
    );
}

/** The protocols to show. */
function Choice({ protocols }: { protocols: readonly Protocol[] }) {
    return (
        <div class="row wrap lens-protocols" role="group" aria-label={t("lens.protocols")}>
            {PROTOCOLS.map((each) => (
                <button
                    key={each}
                    type="button"
                    class={`lens-choice ${each}`}
                    aria-pressed={protocols.includes(each)}
                    title={`${t(`lens.for.${each}`)} · ${t("lens.at-most")}`}
                    onClick={() => toggle(each)}
                >
                    {NAMES[each]}
                </button>
            ))}
        </div>
    );
}

function Runs({ monitor }: { monitor: SessionMonitor }) {
    const runs = monitor.runs.value;
    if (runs.length === 0) return null;
    const newest = runs.length - 1;
    const index = Math.min(monitor.chosen.value ?? newest, newest);
    const run = runs[index];
    const select = (at: number): void => monitor.choose(at >= newest ? null : at);
    return (
        <div class="row lens-runs">
            <span class="lens-back">
                <IconButton
                    icon="chevron"
                    isSmall
                    label={t("lens.earlier")}
                    disabled={index <= 0}
                    onClick={() => select(index - 1)}
                />
            </span>
            <span class="small" title={oneLine(run?.message ?? "")}>
                {t("lens.run", { number: index + 1, count: runs.length })}
            </span>
            <IconButton
                icon="chevron"
                isSmall
                label={t("lens.later")}
                disabled={index >= newest}
                onClick={() => select(index + 1)}
            />
            <span class={run?.isOver === true ? "badge" : "badge good"}>
                {t(run?.isOver === true ? "lens.over" : "lens.live")}
            </span>
            {monitor.chosen.value !== null && (
                <Button isSmall kind="plain" onClick={() => monitor.choose(null)}>
                    {t("lens.newest")}
                </Button>
            )}
        </div>
    );
}
