/** HTTP requests to this server. Paths are relative to the page, so that the server may be mounted under a prefix. */
import { signal } from "@preact/signals";
import { ApiError, errorOf } from "./errors";
import { credential } from "./key";
import { renewLogin } from "./login";

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
export type Query = Readonly<Record<string, string | number | boolean | null | undefined>>;

export interface Options {
    query?: Query;
    /** Sent as JSON, except a `FormData` or `Blob`, which is sent unchanged. */
    body?: unknown;
    signal?: AbortSignal;
    headers?: Readonly<Record<string, string>>;
}

/** Whether the server rejected the key. The shell then asks for another one. */
export const isKeyRefused = signal(false);

/** The absolute URL of a path such as `/api/sessions`. */
export function url(path: string, query: Query = {}): string {
    const address = new URL(path.replace(/^\//, ""), new URL("./", document.baseURI));
    for (const [name, value] of Object.entries(query)) {
        if (value !== null && value !== undefined && value !== "") address.searchParams.set(name, String(value));
    }
    return address.href;
}

/** Sends a request and returns the raw response, for streams and files.
 *  @throws ApiError when there is no response or its status is not a success. */
export async function ask(method: Method, path: string, options: Options = {}, isRepeated = false): Promise<Response> {
    const sent = credential();
    const headers = new Headers(options.headers);
    if (sent !== null) headers.set("authorization", `Bearer ${sent}`);
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
    if (response.status === 401) {
        if (!isRepeated && (await renewLogin(sent))) return await ask(method, path, options, true);
        if (sent === credential()) isKeyRefused.value = true; // else the user has entered another one meanwhile
    }
    throw await errorOf(response);
}

async function json<T>(method: Method, path: string, options?: Options): Promise<T> {
    const response = await ask(method, path, options);
    const text = await response.text();
    return (text === "" ? null : JSON.parse(text)) as T;
}

/** JSON requests. The type parameter is the response body that the protocol defines. */
export const api = {
    get: <T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> =>
        json<T>("GET", path, { ...(query && { query }), ...(signal && { signal }) }),
    post: <T>(path: string, body?: unknown): Promise<T> => json<T>("POST", path, { body }),
    put: <T>(path: string, body?: unknown): Promise<T> => json<T>("PUT", path, { body }),
    patch: <T>(path: string, body?: unknown): Promise<T> => json<T>("PATCH", path, { body }),
    delete: <T>(path: string): Promise<T> => json<T>("DELETE", path),
};
