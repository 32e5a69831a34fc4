"""An agent in Python, with nothing but its standard library: a loop of model calls and one tool."""

import ast
import json
import operator
import os
import sys
import urllib.request

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}

TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluates an arithmetic expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}


def value(node):
    if isinstance(node, ast.Expression):
        return value(node.body)
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](value(node.left), value(node.right))
    if isinstance(node, ast.UnaryOp):
        return OPERATORS[type(node.op)](value(node.operand))
    return node.value


def calculator(arguments):
    try:
        return str(value(ast.parse(json.loads(arguments)["expression"], mode="eval")))
    except Exception as error:  # The model is told, and can write another expression.
        return f"Error: {error}"


def ask(messages):
    body = json.dumps({"model": os.environ["MILLRACE_MODEL"], "messages": messages, "tools": [TOOL]}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["MILLRACE_KEY"]}
    request = urllib.request.Request(os.environ["MILLRACE_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]


messages = [{"role": "system", "content": "You calculate."}, {"role": "user", "content": sys.stdin.read()}]
while True:
    message = ask(messages)
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        result = calculator(call["function"]["arguments"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
print(messages[-1]["content"])
