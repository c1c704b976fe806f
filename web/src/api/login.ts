/** Logging in at the server's identity provider: OpenID Connect's authorization code flow with PKCE, without a secret.
 *  The access token is stored and sent as an API key is. It is renewed with the refresh token, if the provider gave one. */
import { signal } from "@preact/signals";
import { readStored, store } from "../browser/storage";
import { credential, renewKey, useKey } from "./key";

/** What the server says about its provider. */
interface Provider {
    issuer: string;
    client_id: string;
    scope: string;
    authorization_endpoint: string;
    token_endpoint: string;
    end_session_endpoint: string;
    /** Additional parameters of the requests, such as `resource` or `audience`. */
    parameters: Readonly<Record<string, string>>;
}

/** A login in this browser. */
interface Login {
    provider: Provider;
    refreshToken: string | null;
    idToken: string | null;
    expiresAt: number;
}

interface Tokens {
    access_token?: string;
    id_token?: string;
    refresh_token?: string;
    expires_in?: number;
    error?: string;
    error_description?: string;
}

/** What is kept in this tab while the user is at the provider. */
interface Pending {
    provider: Provider;
    state: string;
    verifier: string;
    hash: string;
}

const PENDING = "dragoman.pending-login";
/** A token is renewed when this part of its lifetime has passed. */
const RENEW_AFTER = 0.8;
const DEFAULT_LIFETIME_S = 300;
/** Longest delay that timers of browsers support. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** Why the last login failed; null if none did. */
export const loginError = signal<string | null>(null);

let timer: ReturnType<typeof setTimeout> | undefined;

/** The address to which the provider sends the user back: the console's own, without page and parameters. */
const here = (): string => new URL("./", document.baseURI).href;

/** The server's provider; null if it has none for the console. */
export async function findProvider(): Promise<Provider | null> {
    const response = await fetch(new URL("login.json", here()), { credentials: "omit", cache: "no-store" });
    if (!response.ok) return null;
    return ((await response.json()) as { provider: Provider | null }).provider;
}

/** Leaves the page for the provider. */
export async function beginLogin(provider: Provider): Promise<void> {
    const pending: Pending = { provider, state: random(), verifier: random(), hash: location.hash };
    sessionStorage.setItem(PENDING, JSON.stringify(pending));
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(pending.verifier));
    const address = new URL(provider.authorization_endpoint);
    const parameters = {
        ...provider.parameters,
        response_type: "code",
        client_id: provider.client_id,
        redirect_uri: here(),
        scope: provider.scope,
        state: pending.state,
        code_challenge: base64Url(new Uint8Array(digest)),
        code_challenge_method: "S256",
    };
    for (const [name, value] of Object.entries(parameters)) address.searchParams.set(name, value);
    location.assign(address);
}

/** Finishes a login if the address is one that the provider sent the user back to. Call it before the page is shown. */
export async function completeLogin(): Promise<void> {
    const answer = new URLSearchParams(location.search);
    const kept = sessionStorage.getItem(PENDING);
    if (kept === null || !(answer.has("code") || answer.has("error"))) return keepRenewing();
    sessionStorage.removeItem(PENDING);
    const { provider, state, verifier, hash } = JSON.parse(kept) as Pending;
    history.replaceState(null, "", location.pathname + hash);
    try {
        if (answer.get("state") !== state) throw new Error("state");
        if ((answer.get("iss") ?? provider.issuer) !== provider.issuer) throw new Error("iss");
        const code = answer.get("code");
        if (code === null) throw new Error(answer.get("error_description") ?? answer.get("error") ?? "");
        const grant = { grant_type: "authorization_code", code, redirect_uri: here(), code_verifier: verifier };
        accept(provider, await requestTokens(provider, grant), useKey);
        loginError.value = null;
    } catch (error) {
        loginError.value = error instanceof Error ? error.message : String(error);
    }
}

/** Renews the token if another one than `sent` can be had. Requests that were rejected with `sent` can be repeated then. */
export async function renewLogin(sent: string | null): Promise<boolean> {
    if (current() === null) return false;
    return await navigator.locks.request("dragoman.login", async () => {
        const stored = readStored("key"); // another tab may have renewed it: refresh tokens are often valid once
        if (stored !== null && stored !== sent) {
            if (stored !== credential()) renewKey(stored);
            keepRenewing();
            return true;
        }
        const login = current();
        if (login?.refreshToken == null || sent === null) return false;
        try {
            const grant = { grant_type: "refresh_token", refresh_token: login.refreshToken };
            const tokens = await requestTokens(login.provider, grant);
            accept(login.provider, { ...tokens, refresh_token: tokens.refresh_token ?? login.refreshToken }, renewKey);
            return true;
        } catch {
            return false;
        }
    });
}

/** Forgets the key, and ends the session at the provider if the user logged in there. */
export function signOut(): void {
    const login = current();
    clearTimeout(timer);
    store("login", null);
    useKey(null);
    if (login === null || login.provider.end_session_endpoint === "") return;
    const address = new URL(login.provider.end_session_endpoint);
    address.searchParams.set("client_id", login.provider.client_id);
    address.searchParams.set("post_logout_redirect_uri", here());
    if (login.idToken !== null) address.searchParams.set("id_token_hint", login.idToken);
    location.assign(address);
}

function current(): Login | null {
    const stored = readStored("login");
    return stored === null ? null : (JSON.parse(stored) as Login);
}

function accept(provider: Provider, tokens: Tokens, use: (key: string) => void): void {
    // Some providers issue access tokens that only they can read. Their ID token names the user as well.
    const token = isJwt(tokens.access_token) ? tokens.access_token : tokens.id_token;
    if (token === undefined) throw new Error("token");
    const login: Login = {
        provider,
        refreshToken: tokens.refresh_token ?? null,
        idToken: tokens.id_token ?? current()?.idToken ?? null,
        expiresAt: Date.now() + (tokens.expires_in ?? DEFAULT_LIFETIME_S) * 1000,
    };
    store("login", JSON.stringify(login));
    use(token);
    keepRenewing();
}

function keepRenewing(): void {
    const login = current();
    clearTimeout(timer);
    if (login?.refreshToken == null) return;
    const remaining = Math.max(1_000, login.expiresAt - Date.now());
    timer = setTimeout(() => void renewLogin(credential()), Math.min(remaining * RENEW_AFTER, MAX_DELAY_MS));
}

async function requestTokens(provider: Provider, grant: Readonly<Record<string, string>>): Promise<Tokens> {
    const response = await fetch(provider.token_endpoint, {
        method: "POST",
        body: new URLSearchParams({ ...provider.parameters, ...grant, client_id: provider.client_id }),
        credentials: "omit",
    });
    const tokens = (await response.json()) as Tokens;
    if (!response.ok) throw new Error(tokens.error_description ?? tokens.error ?? String(response.status));
    return tokens;
}

const isJwt = (token: string | undefined): boolean => token !== undefined && /^eyJ[^.]*\.[^.]*\.[^.]*$/.test(token);

function random(): string {
    return base64Url(crypto.getRandomValues(new Uint8Array(32)));
}

function base64Url(bytes: Uint8Array): string {
    return btoa(String.fromCharCode(...bytes))
        .replace(/\+/g, "-")
        .replace(/\//g, "_")
        .replace(/=+$/, "");
}
