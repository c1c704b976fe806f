"""An identity provider on a loopback port: its discovery document, its keys, and the tokens that it signs."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.asgi_client import Message, Receive, Send
from tests.servers import Listener

AUDIENCE = "dragoman"


class Provider:
    """The provider. A test may change what it answers."""

    def __init__(self) -> None:
        self.url = ""
        self.reset()

    def reset(self) -> None:
        """Behave as at the start, with a new key."""
        self.keys: dict[str, ec.EllipticCurvePrivateKey] = {"first": ec.generate_private_key(ec.SECP256R1())}
        self.requests: list[str] = []
        """The paths that were fetched."""
        self.is_down = False
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        """Replaces the answer at a path."""

    @property
    def jwks(self) -> dict[str, Any]:
        return {"keys": [self.jwk(name) for name in self.keys]}

    def jwk(self, name: str) -> dict[str, Any]:
        return {**ECAlgorithm.to_jwk(self.keys[name].public_key(), as_dict=True), "kid": name, "use": "sig"}

    def rotate(self, name: str = "second") -> None:
        """Replace all keys by a new one."""
        self.keys = {name: ec.generate_private_key(ec.SECP256R1())}

    def claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a valid token; `None` removes one."""
        now = time.time()
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ann",
            "iat": now,
            "exp": now + 300,
            "scope": "openid dragoman:use",
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, *, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token that the newest key signed."""
        name = list(self.keys)[-1]
        return jwt.encode(self.claims(**changes), self.keys[name], "ES256", {"kid": name, **(headers or {})})

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        path = scope["path"]
        self.requests.append(path)
        status, headers, body = 200, {"content-type": "application/json"}, b"{}"
        if self.is_down:
            status = 503
        elif path in self.answers:
            status, headers, body = self.answers[path]
        elif path == "/.well-known/openid-configuration":
            members = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/jwks"}
            body = json.dumps({"issuer": self.url, **{name: self.url + at for name, at in members.items()}}).encode()
        elif path == "/jwks":
            body = json.dumps(self.jwks).encode()
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def running_provider() -> AsyncIterator[Provider]:
    """Run a provider."""
    provider = Provider()
    listener = Listener(uvicorn.Config(provider, port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
    connection = await listener.start()
    provider.url = connection.url
    try:
        yield provider
    finally:
        await listener.stop()
