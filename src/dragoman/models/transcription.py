"""Speech to text on an OpenAI-compatible server: `POST /audio/transcriptions`."""

import re
from collections.abc import Mapping

import httpx2
import msgspec

from dragoman.models.registry import OPENAI_URL, ModelNameError
from dragoman.ports.models import Transcriber, TranscriptionFailed

REQUEST_TIMEOUT_S = 120.0
MAX_RESPONSE_BYTES = 4 * 1024 * 1024


class _TranscriptionResponse(msgspec.Struct):
    text: str


class OpenAITranscriber:
    """A `Transcriber` over HTTP.

    Args:
        name: the server's name for the model.
        base_url: the address, including `/v1`.
        api_key: sent as a bearer token. None: no key is sent.
        transport: replaces the TCP transport.
    """

    def __init__(
        self, name: str, *, base_url: str, api_key: str | None, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._name = name
        self._client = httpx2.AsyncClient(
            base_url=base_url, headers=headers, timeout=REQUEST_TIMEOUT_S, transport=transport
        )

    async def transcribe(self, audio: bytes) -> str:
        """The text of a recording in WAV format."""
        try:
            response = await self._client.post(
                "audio/transcriptions",
                data={"model": self._name, "response_format": "json"},
                files={"file": ("speech.wav", audio, "audio/wav")},
            )
        except httpx2.HTTPError as error:
            raise TranscriptionFailed(f"cannot reach the transcription server: {type(error).__name__}") from error
        if response.status_code != httpx2.codes.OK:
            raise TranscriptionFailed(f"the transcription server responded with status {response.status_code}")
        try:
            return msgspec.json.decode(response.content[:MAX_RESPONSE_BYTES], type=_TranscriptionResponse).text
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TranscriptionFailed("the transcription server's response is not valid") from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def resolve_transcriber(name: str, env: Mapping[str, str]) -> Transcriber:
    """Create the transcriber for a name: `openai:NAME` or `openai-compatible:NAME@URL`.

    Raises:
        ModelNameError: the name is not valid, or the key is missing.
    """
    kind, _, rest = name.partition(":")
    parts = re.fullmatch(r"(.+?)@(https?://.+)", rest)
    if kind == "openai-compatible" and parts is not None:
        key = env.get("OPENAI_COMPATIBLE_API_KEY", "").strip()
        return OpenAITranscriber(parts[1], base_url=parts[2], api_key=key or None)
    if kind != "openai" or not rest:
        raise ModelNameError("transcription model: expected openai:NAME or openai-compatible:NAME@URL")
    key = env.get("OPENAI_API_KEY", "").strip()
    base_url = env.get("OPENAI_BASE_URL") or OPENAI_URL
    if not key and base_url.rstrip("/") == OPENAI_URL:
        raise ModelNameError("transcription model: OPENAI_API_KEY is not set")
    return OpenAITranscriber(rest, base_url=base_url, api_key=key or None)
