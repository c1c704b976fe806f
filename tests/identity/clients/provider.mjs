// An OpenID Connect provider on a free port of this machine. Anybody may log in, with any password; the name becomes `sub`.
// Argument: the lifetime of access tokens in seconds. Prints its own address when it listens.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const [lifetime] = process.argv.slice(2);
const isOnThisMachine = (address) => address.startsWith("http://127.0.0.1:");
const server = createServer();
server.listen(0, "127.0.0.1", () => {
    const issuer = `http://127.0.0.1:${server.address().port}`;
    const provider = new Provider(issuer, {
        clients: [
            {
                client_id: "dragoman-console",
                token_endpoint_auth_method: "none",
                grant_types: ["authorization_code", "refresh_token"],
                redirect_uris: ["http://127.0.0.1/"],
            },
        ],
        clientBasedCORS: () => true,
        cookies: { keys: ["for tests"] },
        features: {
            registration: { enabled: true },
            resourceIndicators: {
                enabled: true,
                getResourceServerInfo: (_context, resource) => ({
                    scope: "dragoman:read dragoman:use",
                    audience: resource,
                    accessTokenFormat: "jwt",
                    accessTokenTTL: Number(lifetime),
                }),
                useGrantedResource: () => true,
            },
        },
        issueRefreshToken: () => true,
        rotateRefreshToken: true,
        scopes: ["openid", "offline_access", "dragoman:read", "dragoman:use"],
    });
    // The console's port is not known yet.
    provider.Client.prototype.redirectUriAllowed = isOnThisMachine;
    provider.Client.prototype.postLogoutRedirectUriAllowed = isOnThisMachine;
    server.on("request", provider.callback());
    console.log(issuer);
});
