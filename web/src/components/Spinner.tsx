import { t } from "../i18n";

export function Spinner() {
    return <span class="spinner" aria-hidden="true" />;
}

/** A placeholder for content that is loading. */
export function Loading() {
    return (
        <div class="loading" role="status">
            <Spinner />
            {t("state.loading")}
        </div>
    );
}
