/** Requests to this server. Paths are relative to the page, so that a server below a prefix works too. */
import { signal } from "@preact/signals";
import { ApiError, errorOf } from "./errors";
import { key } from "./key";

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
export type Query = Readonly<Record<string, string | number | boolean | null | undefined>>;

export interface Options {
    query?: Query;
    /** Sent as JSON; a `FormData` or `Blob` as it is. */
    body?: unknown;
    signal?: AbortSignal;
    headers?: Readonly<Record<string, string>>;
}

/** Whether a request came back because of its key: the shell asks for another one. */
export const isKeyRefused = signal(false);

/** The whole address of a path such as `/api/sessions`. */
export function url(path: string, query: Query = {}): string {
    const whole = new URL(path.replace(/^\//, ""), new URL("./", document.baseURI));
    for (const [name, value] of Object.entries(query)) {
        if (value !== null && value !== undefined && value !== "") whole.searchParams.set(name, String(value));
    }
    return whole.href;
}

/** Ask, and get the answer as it is. For streams and files.
 *  @throws ApiError when there is none, or when it is no success. */
export async function ask(method: Method, path: string, options: Options = {}): Promise<Response> {
    const headers = new Headers(options.headers);
    if (key.value !== null) headers.set("authorization", `Bearer ${key.value}`);
    let body: BodyInit | null = null;
    if (options.body instanceof FormData || options.body instanceof Blob) body = options.body;
    else if (options.body !== undefined) {
        body = JSON.stringify(options.body);
        headers.set("content-type", "application/json");
    }
    let response: Response;
    try {
        response = await fetch(url(path, options.query), {
            method,
            headers,
            body,
            signal: options.signal ?? null,
            credentials: "omit",
            cache: "no-store",
        });
    } catch (error) {
        if (options.signal?.aborted) throw error;
        throw new ApiError("");
    }
    if (response.ok) return response;
    if (response.status === 401) isKeyRefused.value = true;
    throw await errorOf(response);
}

async function json<T>(method: Method, path: string, options?: Options): Promise<T> {
    const response = await ask(method, path, options);
    const text = await response.text();
    return (text === "" ? null : JSON.parse(text)) as T;
}

/** JSON in, JSON out. The type is what the protocol says the answer is. */
export const api = {
    get: <T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> =>
        json<T>("GET", path, { ...(query && { query }), ...(signal && { signal }) }),
    post: <T>(path: string, body?: unknown): Promise<T> => json<T>("POST", path, { body }),
    put: <T>(path: string, body?: unknown): Promise<T> => json<T>("PUT", path, { body }),
    patch: <T>(path: string, body?: unknown): Promise<T> => json<T>("PATCH", path, { body }),
    delete: <T>(path: string): Promise<T> => json<T>("DELETE", path),
};
