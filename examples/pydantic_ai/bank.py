"""A support agent of a bank, in Pydantic AI. Nothing in this file knows that a server runs it.

pip install "dragoman[pydantic-ai]" "pydantic-ai-slim[openai]"
OPENAI_API_KEY=… dragoman serve bank.py
"""

from pydantic_ai import Agent, ModelRetry, RunContext

BALANCES = {"Ann": 123.45, "Ben": 9.5}

support = Agent(
    "openai:gpt-5-mini",
    defer_model_check=True,  # the key is needed when the first message comes
    instructions="You are a support agent of our bank. Look at the balance before you give advice.",
    description="Answers questions about accounts, and blocks cards.",
)


@support.tool
def caller(ctx: RunContext) -> str:
    """The name under which the customer has signed in."""
    return str((ctx.metadata or {}).get("user", "unknown"))


@support.tool_plain
def balance(customer: str) -> float:
    """The balance of a customer's account, in euros."""
    if customer not in BALANCES:
        raise ModelRetry(f"no customer {customer!r}; customers: {', '.join(BALANCES)}")
    return BALANCES[customer]


@support.tool_plain(requires_approval=True)
def block_card(customer: str) -> str:
    """Block a customer's card for good."""
    return f"the card of {customer} is blocked"
