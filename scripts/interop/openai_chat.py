"""Chat Completions with the official Python client."""

import json
import os
import pathlib
import subprocess
import sys

import openai
from pydantic import BaseModel

from harness import *

def client_of(session, by="key"):
    if by == "key":
        return openai.OpenAI(base_url=f"{GATEWAY}/v1", api_key=session.key, max_retries=0)
    return openai.OpenAI(base_url=f"{session.url}/v1", api_key=ADMIN_KEY, max_retries=0)


def user(content):
    return {"role": "user", "content": content}


@case
def chat_by_key_and_by_url(model):
    for by in ("key", "url"):
        session = Session()
        reply = client_of(session, by).chat.completions.create(model=model, messages=[user(QUESTION)])
        assert ANSWER in reply.choices[0].message.content
        assert reply.choices[0].finish_reason == "stop" and reply.usage.total_tokens > 0
        session.expect_one_branch(["user", "assistant"], model)


@case
def chat_streamed(model):
    session = Session()
    stream = client_of(session).chat.completions.create(
        model=model, messages=[user(QUESTION)], stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert ANSWER in text and chunks[-1].usage.completion_tokens > 0
    with client_of(session).chat.completions.stream(model=model, messages=[user(QUESTION)]) as events:
        assert events.get_final_completion().choices[0].message.content == text


@case
def chat_with_tools(model):
    for question, answer, roles in ((QUESTION, ANSWER, ONE_TOOL), (LIST_QUESTION, LIST_ANSWER, THREE_TOOLS)):
        session = Session()
        client = client_of(session)
        messages = [user(question)]
        while True:
            reply = client.chat.completions.create(model=model, messages=messages, tools=TOOLS_OF_CHAT)
            message = reply.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                content = run_tool(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        assert answer in message.content
        session.expect_one_branch(roles, model)


class Person(BaseModel):
    name: str
    age: int


@case
def chat_parsed(model):
    reply = client_of(Session()).chat.completions.parse(
        model=model, messages=[user(QUESTION)], response_format=Person
    )
    assert isinstance(reply.choices[0].message.parsed, Person)


@case
def chat_with_an_image(model):
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    content = [picture, {"type": "text", "text": QUESTION}]
    reply = client_of(Session()).chat.completions.create(model=model, messages=[user(content)])
    assert ANSWER in reply.choices[0].message.content


@case
def chat_errors():
    session = Session(limits={"maxRequests": 1})
    client = client_of(session)
    ask = client.chat.completions.create
    messages = [user(QUESTION)]
    raises(openai.AuthenticationError, lambda: client.with_options(api_key="wrong").models.list())
    missing = raises(openai.NotFoundError, lambda: ask(model="none", messages=messages))
    assert (missing.code, missing.param) == ("model_not_found", "model")
    assert raises(openai.BadRequestError, lambda: ask(model="chat", messages=[])).param == "messages"
    ask(model="chat", messages=messages)
    raises(openai.RateLimitError, lambda: ask(model="chat", messages=messages))
    session.end()
    assert raises(openai.APIStatusError, lambda: ask(model="chat", messages=messages)).status_code == 410
    assert {model.id for model in client_of(Session()).models.list()} == set(BACKENDS)


@case
def the_example_of_the_guide(model):
    example = pathlib.Path(__file__).parents[2] / "examples" / "python" / "gateway_session.py"
    done = subprocess.run([sys.executable, example], env={**os.environ, "MODEL": model}, check=True, stdout=subprocess.PIPE)
    # Each line is a session's id, in which anything may occur, and its answer.
    answers = [line.split(" ", 1)[1] for line in done.stdout.decode().splitlines()]
    assert len(answers) == 4 and all("42" in answer for answer in answers), done.stdout
