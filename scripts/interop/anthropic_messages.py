"""Messages with the official Python client."""

import anthropic
from pydantic import BaseModel

from harness import *

TOOLS_OF_MESSAGES = [
    {"name": name, "description": text, "input_schema": schema} for name, (text, schema) in TOOLS.items()
]


def client_of(session, by="key"):
    if by == "key":
        return anthropic.Anthropic(base_url=GATEWAY, api_key=session.key, max_retries=0)
    return anthropic.Anthropic(base_url=session.url, api_key=ADMIN_KEY, max_retries=0)


def user(content):
    return {"role": "user", "content": content}


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


@case
def messages_by_key_and_by_url(model):
    for by in ("key", "url"):
        session = Session()
        message = client_of(session, by).messages.create(model=model, max_tokens=1000, messages=[user(QUESTION)])
        assert ANSWER in text_of(message)
        assert message.stop_reason == "end_turn" and message.usage.output_tokens > 0
        session.expect_one_branch(["user", "assistant"], model)


@case
def messages_streamed(model):
    client = client_of(Session())
    events = list(client.messages.create(model=model, max_tokens=1000, messages=[user(QUESTION)], stream=True))
    assert events[0].type == "message_start" and events[-1].type == "message_stop"
    with client.messages.stream(model=model, max_tokens=1000, messages=[user(QUESTION)]) as stream:
        text = "".join(stream.text_stream)
        assert ANSWER in text and text_of(stream.get_final_message()) == text


@case
def messages_with_tools_and_thinking(model):
    for question, answer, roles in ((QUESTION, ANSWER, ONE_TOOL), (LIST_QUESTION, LIST_ANSWER, THREE_TOOLS)):
        session = Session()
        client = client_of(session)
        messages = [user(question)]
        while True:
            message = client.messages.create(
                model=model,
                max_tokens=4000,
                messages=messages,
                tools=TOOLS_OF_MESSAGES,
                thinking={"type": "enabled", "budget_tokens": 2000},
            )
            assert message.content[0].type == "thinking", message.content
            messages.append({"role": "assistant", "content": message.content})
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                break
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": run_tool(call.name, call.input)}
                for call in calls
            ]
            messages.append(user(results))
        assert answer in text_of(message)
        session.expect_one_branch(roles, model)


@case
def messages_by_the_tool_runner(model):
    @anthropic.beta_tool
    def calculator(expression: str) -> str:
        """The value of an arithmetic expression."""
        return run_tool("calculator", {"expression": expression})

    session = Session()
    runner = client_of(session).beta.messages.tool_runner(
        model=model, max_tokens=1000, messages=[user(QUESTION)], tools=[calculator]
    )
    assert ANSWER in text_of(runner.until_done())
    session.expect_one_branch(ONE_TOOL, model)


class Person(BaseModel):
    name: str
    age: int


@case
def messages_parsed(model):
    message = client_of(Session()).messages.parse(
        model=model, max_tokens=1000, messages=[user(QUESTION)], output_format=Person
    )
    assert isinstance(message.parsed_output, Person)


@case
def messages_with_an_image(model):
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    content = [picture, {"type": "text", "text": QUESTION}]
    message = client_of(Session()).messages.create(model=model, max_tokens=1000, messages=[user(content)])
    assert ANSWER in text_of(message)


@case
def messages_errors():
    session = Session(limits={"maxRequests": 1})
    client = client_of(session)

    def ask(**asked):
        return client.messages.create(**{"model": "chat", "max_tokens": 100, "messages": [user(QUESTION)], **asked})

    wrong = anthropic.Anthropic(base_url=GATEWAY, api_key="wrong", max_retries=0)
    raises(anthropic.AuthenticationError, lambda: wrong.models.list())
    raises(anthropic.NotFoundError, lambda: ask(model="none"))
    raises(anthropic.BadRequestError, lambda: ask(messages=[]))
    ask()
    raises(anthropic.RateLimitError, ask)
    assert {model.id for model in client_of(Session()).models.list()} == set(BACKENDS)
