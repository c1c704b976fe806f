"""Estimates of token counts where the model's own tokenizer is not available. Pure."""

CHARS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text. Non-Latin scripts need more tokens per character."""
    if text.isascii():
        return len(text) // CHARS_PER_TOKEN + 1
    wide = len(text.encode("utf-8", "replace")) - len(text)
    return len(text) // CHARS_PER_TOKEN + wide // 2 + 1
