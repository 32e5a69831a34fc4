"""The model's tokens are single characters and four special ones. It says so in the files that Hugging Face models have."""

from __future__ import annotations

import json
from pathlib import Path

SPECIALS = ("<|pad|>", "<|unknown|>", "<|end|>", "<|user|>", "<|model|>", "<|tool|>")
PAD, UNKNOWN, END, USER, MODEL, TOOL = range(len(SPECIALS))
VOCABULARY = (*SPECIALS, *"0123456789+-=[](),. abd")
_IDS = {token: id for id, token in enumerate(VOCABULARY)}

#: As the model writes it: a call is `[add(a=1,b=2)]`. The model knows its tool, so no tools are described to it.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
<|model|>{{ message.content }}
{%- for call in message.tool_calls or [] -%}
[{{ call.function.name }}({% for name, value in call.function.arguments | items %}{{ name }}={{ value | tojson }}{% if not loop.last %},{% endif %}{% endfor %})]
{%- endfor -%}
{%- elif message.role == 'tool' -%}
<|tool|>{{ message.content }}
{%- else -%}
<|user|>{{ message.content }}
{%- endif -%}
<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}
<|model|>
{%- endif -%}
"""


def encode(text: str) -> list[int]:
    """Ids of a text, in which special tokens are written out."""
    ids, at = [], 0
    while at < len(text):
        special = next((token for token in SPECIALS if text.startswith(token, at)), None)
        ids.append(_IDS[special] if special else _IDS.get(text[at], UNKNOWN))
        at += len(special or text[at])
    return ids


def decode(ids) -> str:
    return "".join(VOCABULARY[id] for id in ids)


def write_tokenizer(folder: Path) -> None:
    """Writes `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`: Millrace makes the same ids from them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": id, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            for id, token in enumerate(SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        # Byte-pair encoding without a merge leaves characters.
        "model": {"type": "BPE", "vocab": _IDS, "merges": [], "unk_token": SPECIALS[UNKNOWN]},
        "decoder": {"type": "Fuse"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "pad_token": "<|pad|>"}))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
