"""About how many tokens a text has, where nobody has the model's own tokenizer. Pure."""

CHARS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has. Scripts other than Latin take more of them for each character."""
    if text.isascii():
        return len(text) // CHARS_PER_TOKEN + 1
    wide = len(text.encode("utf-8", "replace")) - len(text)
    return len(text) // CHARS_PER_TOKEN + wide // 2 + 1
