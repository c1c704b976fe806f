/** Request errors, with the message of the protocol that answered. */

export interface Facts {
    /** 0 when there was no response. */
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

/** Parses an error response. The protocols' bodies: `{error, code}`, `{detail}`, problem+json. */
export async function errorOf(response: Response): Promise<ApiError> {
    const text = await response.text().catch(() => "");
    let body: unknown = null;
    try {
        body = JSON.parse(text);
    } catch {
        // Not JSON, such as a proxy's error page: the status is enough.
    }
    const members = isObject(body) ? body : {};
    const inner = isObject(members["error"]) ? members["error"] : members;
    const message = [inner["message"], inner["detail"], inner["error"], inner["title"]].find(isText);
    const retryAfter = Number(response.headers.get("retry-after") ?? Number.NaN);
    return new ApiError(message ?? "", {
        status: response.status,
        code: [inner["code"], inner["type"]].find(isText) ?? null,
        reference: isText(inner["reference"]) ? inner["reference"] : null,
        retryAfterS: Number.isFinite(retryAfter) ? retryAfter : null,
    });
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;
