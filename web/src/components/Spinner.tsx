import { t } from "../i18n";

export function Spinner() {
    return <span class="spinner" aria-hidden="true" />;
}

/** In place of what is being fetched. */
export function Loading() {
    return (
        <div class="loading" role="status">
            <Spinner />
            {t("state.loading")}
        </div>
    );
}
