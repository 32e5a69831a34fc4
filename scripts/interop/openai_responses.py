"""Responses with the official Python client."""

import json

import openai
from pydantic import BaseModel

from harness import *
from openai_chat import client_of

TOOLS_OF_RESPONSES = [
    {"type": "function", "name": name, "description": text, "parameters": schema, "strict": True}
    for name, (text, schema) in TOOLS.items()
]


def results_of(response):
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": run_tool(item.name, json.loads(item.arguments))}
        for item in response.output
        if item.type == "function_call"
    ]


@case
def responses_by_key_and_by_url(model):
    for by in ("key", "url"):
        session = Session()
        response = client_of(session, by).responses.create(model=model, input=QUESTION)
        assert ANSWER in response.output_text and response.status == "completed"
        session.expect_one_branch(["user", "assistant"], model)


@case
def responses_streamed(model):
    client = client_of(Session())
    events = list(client.responses.create(model=model, input=QUESTION, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert ANSWER in events[-1].response.output_text
    with client.responses.stream(model=model, input=QUESTION) as stream:
        assert stream.get_final_response().output_text == events[-1].response.output_text


@case
def responses_with_tools(model):
    for question, answer, roles in ((QUESTION, ANSWER, ONE_TOOL), (LIST_QUESTION, LIST_ANSWER, THREE_TOOLS)):
        session = Session()
        client = client_of(session)
        items = [{"role": "user", "content": question}]
        while True:
            response = client.responses.create(model=model, input=items, tools=TOOLS_OF_RESPONSES)
            results = results_of(response)
            items += [item.model_dump(exclude_none=True) for item in response.output] + results
            if not results:
                break
        assert answer in response.output_text
        session.expect_one_branch(roles, model)


@case
def responses_that_go_on_from_one(model):
    session = Session()
    client = client_of(session)
    called = client.responses.create(model=model, input=QUESTION, tools=TOOLS_OF_RESPONSES)
    response = client.responses.create(
        model=model, input=results_of(called), tools=TOOLS_OF_RESPONSES, previous_response_id=called.id
    )
    assert ANSWER in response.output_text
    session.expect_one_branch(ONE_TOOL, model)


class Person(BaseModel):
    name: str
    age: int


@case
def responses_parsed(model):
    response = client_of(Session()).responses.parse(model=model, input=QUESTION, text_format=Person)
    assert isinstance(response.output_parsed, Person)


@case
def responses_errors():
    ask = client_of(Session()).responses.create
    assert raises(openai.NotFoundError, lambda: ask(model="none", input=QUESTION)).param == "model"
    assert raises(openai.BadRequestError, lambda: ask(model="chat", input=[])).param == "input"
    gone = raises(openai.NotFoundError, lambda: ask(model="chat", input="And?", previous_response_id="resp_0"))
    assert gone.param == "previous_response_id"
