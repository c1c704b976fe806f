"""A support desk with the OpenAI Agents SDK. No line of Dragoman stands here.

    OPENAI_API_KEY=… dragoman serve examples/openai_agents/support_desk.py

`triage` is served. The others are parts of it, because it hands off to them.
"""

from typing import Any

from agents import Agent, RunContextWrapper, function_tool

MODEL = "gpt-5-mini"


@function_tool
def find_order(order_id: str) -> str:
    """Find an order.

    Args:
        order_id: The number of the order, such as A17.
    """
    return f"Order {order_id}: a lamp, 59.00 EUR, delivered on Monday"


@function_tool(needs_approval=True)
def refund(context: RunContextWrapper[Any], order_id: str, amount: float) -> str:
    """Pay money back to the customer.

    Args:
        order_id: The number of the order.
        amount: The amount in EUR.
    """
    return f"Refunded {amount:.2f} EUR for order {order_id} to {context.context['user']}"


billing = Agent(
    name="Billing agent",
    handoff_description="Invoices and refunds",
    instructions="You answer questions about invoices, and refund orders. Find the order first.",
    model=MODEL,
    tools=[find_order, refund],
)

shipping = Agent(
    name="Shipping agent",
    handoff_description="Deliveries and addresses",
    instructions="You answer questions about deliveries.",
    model=MODEL,
    tools=[find_order],
)

triage = Agent(
    name="Triage agent",
    instructions="Hand off to the agent that can help. Answer general questions yourself.",
    model=MODEL,
    handoffs=[billing, shipping],
)
