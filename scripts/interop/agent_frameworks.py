"""Agents of Python frameworks, over the trainable model, with nothing set but address and key."""

import asyncio
import json
import os

# Its list of prices is on the internet; without it there is a warning.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import agents
import litellm
from anthropic import AsyncAnthropic
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from harness import *

MODEL = "policy"


def calculator(expression: str) -> str:
    """The value of an arithmetic expression."""
    return run_tool("calculator", {"expression": expression})


def delegate(task: str) -> str:
    """Has somebody else work out a part."""
    return run_tool("delegate", {"task": task})


def expect_answers(run):
    """Asks a question that takes one call, and one that takes three at once, each in a session."""
    for question, answer, calls in ((QUESTION, ANSWER, 1), (LIST_QUESTION, LIST_ANSWER, 3)):
        session = Session()
        said = run(session, question)
        assert answer in said, said
        session.expect_one_row(calls)


@case
def langgraph_with_chat_responses_and_messages():
    def chat(session, **options):
        return ChatOpenAI(model=MODEL, base_url=f"{GATEWAY}/v1", api_key=session.key, **options)

    def run_with(model_of):
        def run(session, question):
            agent = create_agent(model_of(session), tools=[calculator, delegate])
            return agent.invoke({"messages": [{"role": "user", "content": question}]})["messages"][-1].text

        return run

    expect_answers(run_with(chat))
    expect_answers(run_with(lambda session: chat(session, streaming=True)))
    expect_answers(run_with(lambda session: chat(session, use_responses_api=True)))
    expect_answers(run_with(lambda session: ChatAnthropic(model=MODEL, base_url=GATEWAY, api_key=session.key)))


@case
def pydantic_ai_with_chat_responses_and_messages():
    def openai_of(session):
        return OpenAIProvider(base_url=f"{GATEWAY}/v1", api_key=session.key)

    def anthropic_of(session):
        return AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=GATEWAY, api_key=session.key))

    for kind, provider in (
        (OpenAIChatModel, openai_of),
        (OpenAIResponsesModel, openai_of),
        (AnthropicModel, anthropic_of),
    ):

        def run(session, question):
            agent = Agent(kind(MODEL, provider=provider(session)), tools=[calculator, delegate])
            return agent.run_sync(question).output

        expect_answers(run)


@case
def agents_sdk_with_chat_and_responses():
    # Traces would be sent to OpenAI.
    agents.set_tracing_disabled(True)
    tools = [agents.function_tool(calculator), agents.function_tool(delegate)]

    async def ask(kind, session, question):
        async with AsyncOpenAI(base_url=f"{GATEWAY}/v1", api_key=session.key) as client:
            agent = agents.Agent(name="agent", model=kind(MODEL, client), tools=tools)
            return (await agents.Runner.run(agent, question)).final_output

    for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):

        def run(session, question):
            return asyncio.run(ask(kind, session, question))

        expect_answers(run)


@case
def litellm_with_chat_and_messages():
    litellm.suppress_debug_info = True
    for model, base in ((f"openai/{MODEL}", f"{GATEWAY}/v1"), (f"anthropic/{MODEL}", GATEWAY)):

        def run(session, question):
            messages = [{"role": "user", "content": question}]
            while True:
                reply = litellm.completion(
                    model=model, api_base=base, api_key=session.key, messages=messages, tools=TOOLS_OF_CHAT, max_tokens=4000
                )
                message = reply.choices[0].message
                messages.append(message)
                for call in message.tool_calls or []:
                    content = run_tool(call.function.name, json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
                if not message.tool_calls:
                    return message.content

        expect_answers(run)
