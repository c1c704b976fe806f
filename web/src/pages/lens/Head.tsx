/** Which session, which run of it, and how it is shown. */
import type { Signal } from "@preact/signals";
import { useId } from "preact/hooks";
import { bare } from "../../chat/wire";
import { IconButton, Button } from "../../components/Button";
import { Checkbox } from "../../components/Field";
import { dateTime, t } from "../../i18n";
import { gist } from "../../lens/names";
import type { Watch } from "../../lens/watch";
import { go, to } from "../../shell/router";
import type { SessionItem } from "./index";

interface Props {
    watch: Watch;
    session: SessionItem;
    sessions: readonly SessionItem[];
    isFolded: Signal<boolean>;
    view: Signal<View>;
}

export type View = "events" | "history";
const VIEWS: readonly View[] = ["events", "history"];

export function Head({ watch, session, sessions, isFolded, view }: Props) {
    const id = useId();
    return (
        <header class="lens-head">
            <div class="lens-title">
                <h1>{t("nav.lens")}</h1>
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
                            {gist(each.intent) || `${t("lens.untitled")} · ${dateTime(each.created_at)}`}
                        </option>
                    ))}
                </select>
                <Runs watch={watch} />
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
                        value={isFolded.value}
                        onValue={(value) => (isFolded.value = value)}
                    />
                )}
                <a class="small" href={to("conversations", bare(session.id))}>
                    {t("lens.conversation")}
                </a>
            </div>
        </header>
    );
}

function Runs({ watch }: { watch: Watch }) {
    const runs = watch.runs.value;
    if (runs.length === 0) return null;
    const newest = runs.length - 1;
    const index = Math.min(watch.chosen.value ?? newest, newest);
    const run = runs[index];
    const look = (at: number): void => watch.choose(at >= newest ? null : at);
    return (
        <div class="row lens-runs">
            <span class="lens-back">
                <IconButton
                    icon="chevron"
                    isSmall
                    label={t("lens.earlier")}
                    disabled={index <= 0}
                    onClick={() => look(index - 1)}
                />
            </span>
            <span class="small" title={gist(run?.asked ?? "")}>
                {t("lens.run", { number: index + 1, count: runs.length })}
            </span>
            <IconButton
                icon="chevron"
                isSmall
                label={t("lens.later")}
                disabled={index >= newest}
                onClick={() => look(index + 1)}
            />
            <span class={run?.isOver === true ? "badge" : "badge good"}>
                {t(run?.isOver === true ? "lens.over" : "lens.live")}
            </span>
            {watch.chosen.value !== null && (
                <Button isSmall kind="plain" onClick={() => watch.choose(null)}>
                    {t("lens.newest")}
                </Button>
            )}
        </div>
    );
}
