"""Cases, sessions and sums: what the conversations of one client have in common with those of another."""

import json
import os
import re
import traceback
import urllib.request

GATEWAY = os.environ["GATEWAY_URL"]
ADMIN_KEY = os.environ["GATEWAY_ADMIN_KEY"]
# The simulator behind the model `chat`, which knows what it was asked and what it sampled.
SIMULATOR = os.environ["SIMULATOR_URL"]
# The gateway's models, each named after the API that its backend speaks.
BACKENDS = ("chat", "responses", "messages")

QUESTION, ANSWER = "What is 12 * 34?", "408"
LIST_QUESTION, LIST_ANSWER = "Add these up:\n- 2 * 3\n- 4 * 5\n- 6 * 7", "68"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

TOKENS = ("promptIds", "ids", "logprobs")

ONE_TOOL = ["user", "assistant", "tool", "assistant"]
THREE_TOOLS = ["user", "assistant", "tool", "tool", "tool", "assistant"]

_cases = []


def case(function):
    """Runs once for every backend, or once if it takes no model."""
    wants_model = function.__code__.co_argcount > 0
    for model in BACKENDS if wants_model else [None]:
        name = function.__name__.replace("_", " ") + (f", over {model}" if model else "")
        _cases.append((name, function, [model] if model else []))
    return function


def run_cases():
    """Runs them all, says how each went, and returns how many failed."""
    failed = 0
    for name, function, arguments in _cases:
        try:
            function(*arguments)
            print(f"  ok      {name}", flush=True)
        except Exception:
            failed += 1
            print(f"  FAILED  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(_cases) - failed} passed, {failed} failed", flush=True)
    return failed


class Session:
    """A session of the gateway: its key and its address for clients, and what is recorded of it."""

    def __init__(self, **options):
        started = _call("POST", "/v1/sessions", options)["sessions"][0]
        self.id, self.key, self.url = started["id"], started["key"], started["url"]

    def end(self):
        _call("POST", f"/v1/sessions/{self.id}/end", {})

    def interactions(self):
        return self._rows("interactions")

    def expect_one_row(self, calls_at_once=1):
        """Replies are recorded with the tokens that the backend saw and sampled, and are one training row."""
        rows = self.interactions()
        recorded = [[row[name] for name in TOKENS] for row in rows]
        replies = json.loads(_get(f"{SIMULATOR}/sim/emitted?session={self.id}"))["replies"]
        assert recorded == [[reply[name] for name in TOKENS] for reply in replies], "other tokens than the backend's"
        (row,) = self._rows("merged")
        assert row["ids"] == replies[-1]["promptIds"] + replies[-1]["ids"], "other ids than the last prompt and reply"
        assert sum(row["mask"]) == sum(len(reply["ids"]) for reply in replies), "not every sampled token is trained"
        said = [message for row in rows for message in row["messages"]]
        most = max(len(message.get("tool_calls") or []) for message in said)
        assert most >= calls_at_once, f"{most} calls at once"

    def _rows(self, kind):
        text = _send("GET", f"/v1/export?session={self.id}&rows={kind}")
        *rows, end = [json.loads(line) for line in text.splitlines()]
        assert end["kind"] == "end", end
        return rows

    def expect_one_branch(self, roles, model):
        """Every message was recorded once, in this order, and every reply with its tokens where the backend tells."""
        rows = self.interactions()
        recorded = [message["role"] for row in rows for message in row["messages"]]
        assert recorded == roles, recorded
        parents = [row["parentInteraction"] for row in rows]
        assert parents == [None] + [row["interaction"] for row in rows[:-1]], parents
        for row in rows if model == "chat" else []:
            assert len(row["ids"]) == len(row["logprobs"]) == row["usage"]["output"], row


def run_tool(name, arguments):
    """A calculator, and somebody to delegate parts to."""
    if name == "calculator":
        return str(eval(re.fullmatch(r"[-+*/(). \d]+", arguments["expression"]).group()))
    if name == "delegate":
        return str(eval(re.search(r"What is ([-+*/(). \d]+)\?", arguments["task"]).group(1)))
    raise ValueError(f"there is no tool {name}")


def schema_of(parameter):
    return {
        "type": "object",
        "properties": {parameter: {"type": "string"}},
        "required": [parameter],
        "additionalProperties": False,
    }


TOOLS = {
    "calculator": ("The value of an arithmetic expression.", schema_of("expression")),
    "delegate": ("Has somebody else work out a part.", schema_of("task")),
}

TOOLS_OF_CHAT = [
    {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}
    for name, (text, schema) in TOOLS.items()
]


def raises(kind, work):
    """The error of that class that it ends with."""
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def _call(method, path, body):
    return json.loads(_send(method, path, body))


def _send(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    return _get(urllib.request.Request(GATEWAY + path, data, {"x-api-key": ADMIN_KEY}, method=method))


def _get(request):
    with urllib.request.urlopen(request) as reply:
        return reply.read().decode()
