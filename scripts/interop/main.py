"""The conversations of test/gateway, from Python. Started by run.ts, which says where the gateway is."""

import sys

import anthropic_messages, openai_chat, openai_responses  # noqa: F401 (they register their cases)
from harness import run_cases

sys.exit(1 if run_cases() else 0)
