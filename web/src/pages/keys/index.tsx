import { t } from "../../i18n";

export default function Page() {
    return (
        <div class="page">
            <div class="page-body">
                <h1>{t("nav.keys")}</h1>
            </div>
        </div>
    );
}
