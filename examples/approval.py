"""A model with a tool that requires approval. Serve it with `dragoman serve examples/approval.py`.

The run ends when the model calls the tool, and continues when the user has approved or denied the call: over any
protocol, after any time, even after a restart. Only the session's owner can answer, and only once.
"""

from dragoman import Agent, SecretOption, ToolContext, ToolFailed, tool

outbox: list[str] = []


@tool(needs_approval=True, on_restart="ask")
def send_mail(context: ToolContext, to: str, subject: str, body: str) -> str:
    """Send an e-mail in the user's name.

    Args:
        to: the address.
        subject: a few words.
        body: the full text.
    """
    if not context.options["mail_password"]:
        raise ToolFailed("the user has not set the option mail_password yet")
    outbox.append(f"{context.user} to {to}: {subject}\n{body}")
    return f"sent to {to}"


secretary = Agent(
    "secretary",
    title="Secretary",
    tools=[send_mail],
    options=[SecretOption(name="mail_password", title="Password of your mail account")],
    history=True,
    ask_user=True,
    instructions="You write e-mails. Ask the user for any missing information, then send the e-mail with your tool.",
)
