/** What went wrong with a request, in the words of whichever protocol answered it. */

export interface Facts {
    /** 0 when there was no answer at all. */
    status: number;
    code: string | null;
    reference: string | null;
    retryAfterS: number | null;
}

export class ApiError extends Error implements Facts {
    readonly status: number;
    readonly code: string | null;
    readonly reference: string | null;
    readonly retryAfterS: number | null;

    constructor(message: string, facts: Partial<Facts> = {}) {
        super(message);
        this.name = "ApiError";
        this.status = facts.status ?? 0;
        this.code = facts.code ?? null;
        this.reference = facts.reference ?? null;
        this.retryAfterS = facts.retryAfterS ?? null;
    }
}

/** Read an answer that is no success. The protocols' bodies: `{error, code}`, `{detail}`, problem+json. */
export async function errorOf(response: Response): Promise<ApiError> {
    const text = await response.text().catch(() => "");
    let body: unknown = null;
    try {
        body = JSON.parse(text);
    } catch {
        // Some proxy's page: its status says enough.
    }
    const said = isObject(body) ? body : {};
    const inner = isObject(said["error"]) ? said["error"] : said;
    const words = [inner["message"], inner["detail"], inner["error"], inner["title"]].find(isText);
    const retryAfter = Number(response.headers.get("retry-after") ?? Number.NaN);
    return new ApiError(words ?? "", {
        status: response.status,
        code: [inner["code"], inner["type"]].find(isText) ?? null,
        reference: isText(inner["reference"]) ? inner["reference"] : null,
        retryAfterS: Number.isFinite(retryAfter) ? retryAfter : null,
    });
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;
