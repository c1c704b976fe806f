"""The script of the message `Show me everything`: one of each thing that an answer can contain. Pure data."""

from dragoman.core.content import JsonObject

TOUR_MESSAGE = "show me everything"

_TEXT = """\
**Welcome.** This tour needs no model: the rehearsal agent plays a script with everything that an answer can contain.

Text is streamed, as *Markdown*:

| you see | the agent |
|---|---|
| text and thinking | writes them, piece by piece |
| a plan | says what it will do |
| calls | uses tools, several at a time |
| questions and approvals | waits for you, for a month if necessary |

```python
played = play(assistant, "What is 20 + 22?")
```

"""

_CARD: JsonObject = {
    "type": "stack",
    "appearance": "card",
    "children": [
        {"type": "text", "role": "title", "content": "A card"},
        {"type": "badge", "label": "ready", "status": "success"},
        {"type": "kv", "items": [{"label": "Drawn by", "value": "UI schema 2.0", "copyable": True}]},
    ],
}

_QUESTION: JsonObject = {
    "question": "What do you want to stamp?",
    "header": "Stamp",
    "options": [{"label": "A letter"}, {"label": "A parcel"}],
}


def _plan(done: int) -> JsonObject:
    titles = ("Show text and tools", "Ask a question", "Ask for approval")
    steps = [
        {"title": title, "status": "done" if index < done else "in_progress" if index == done else "pending"}
        for index, title in enumerate(titles)
    ]
    return {"plan": {"status": "done" if done == len(titles) else "in_progress", "steps": steps}}


TOUR: list[JsonObject] = [
    {"think": "The user wants to see everything. I begin with text, and then use some tools.", "every_ms": 30},
    {"say": _TEXT, "every_ms": 20},
    _plan(0),
    {"say": "Two calls at the same time, of which one fails, as tools do:"},
    {"calls": [{"name": "add", "input": {"a": 20, "b": 22}}, {"name": "boom", "input": {}}]},
    {"say": "A sub-agent with a task of its own:"},
    {
        "fork": {
            "description": "Look something up",
            "script": [{"think": "Where was it?"}, {"say": "It is in the second drawer."}],
        }
    },
    {"say": "A card, and data for the application:"},
    {"card": _CARD},
    {"data": {"city": "Rome", "nights": 2}},
    {"step": True},
    _plan(1),
    {"say": "Now a question. The run ends here and continues with your answer:"},
    {"ask": {"questions": [_QUESTION]}},
    _plan(2),
    {"say": "You chose: {answer}. The tool `stamp` runs only if you allow it:"},
    {"call": {"name": "stamp", "input": {"text": "tour"}}},
    _plan(3),
    {"say": "The result: {result}.\n\n"},
    {
        "say": "That was everything. The *protocol lens* shows this conversation in every protocol. "
        "To write an agent of your own: `dragoman init`."
    },
]
