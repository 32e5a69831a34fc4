"""What the Python originals make of hostile texts and conversations, for a comparison with ours: originals.py FOLDER COUNT

Makes a tokenizer of each kind on the spot. Writes `<kind>/tokenizer.json` and `<kind>/texts.jsonl` (text, ids, decoded) for each, and
`templates.jsonl` (name, source, input, text or error). FOLDER has `probes.json`: texts that come first.
"""

import json
import random
import sys
import unicodedata
from datetime import datetime
from pathlib import Path

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER, COUNT = Path(sys.argv[1]), int(sys.argv[2])
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<pad>"]

GPT_2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA_3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)


def split(*patterns):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def bpe(lines, pre_tokenizer=None, normalizer=None, decoder=None, alphabet=(), **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder or decoders.ByteLevel()
    bytes_as_tokens = [f"<0x{byte:02X}>" for byte in range(256)] if options.get("byte_fallback") else []
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=SPECIAL + bytes_as_tokens, initial_alphabet=list(alphabet), limit_alphabet=300)
    tokenizer.train_from_iterator(lines, trainer)
    return plain_bytes(tokenizer) if bytes_as_tokens else tokenizer


def plain_bytes(tokenizer):
    """The bytes are tokens of the model; they were added only so that the trainer would know them."""
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["content"] in SPECIAL]
    return Tokenizer.from_str(json.dumps(document))


def byte_level(lines, pre_tokenizer, **options):
    return bpe(lines, pre_tokenizer, alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)


def llama_2(lines):
    spaced = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return bpe(lines, None, spaced, decoder, unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def llama_2_metaspace(lines):
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return bpe(lines, metaspace, None, decoder, unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def gemma(lines):
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    space = pre_tokenizers.Split(" ", "merged_with_previous")
    return bpe(lines, space, normalizers.Replace(" ", "▁"), decoder, unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def unigram(lines):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=1500, special_tokens=SPECIAL, unk_token="<unk>"))
    return tokenizer


def word_piece(lines):
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=1500, special_tokens=SPECIAL, limit_alphabet=300))
    return tokenizer


def begins_with_token(tokenizer):
    start = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", start)])
    return tokenizer


KINDS = {
    "gpt-2": lambda lines: byte_level(lines, pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "gpt-2 split": lambda lines: byte_level(lines, split(GPT_2)),
    "llama-3": lambda lines: begins_with_token(byte_level(lines, split(LLAMA_3), ignore_merges=True)),
    "qwen": lambda lines: byte_level(lines, split(QWEN), normalizer=normalizers.NFC()),
    "o200k": lambda lines: byte_level(lines, split(O200K)),
    "deepseek": lambda lines: byte_level(lines, split(r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK)),
    "llama-2": llama_2,
    "llama-2 metaspace": llama_2_metaspace,
    "gemma": gemma,
    "unigram": unigram,
    "word piece": word_piece,
}

PIECES = [
    # Scripts, marks and their other forms.
    "naïve", "nai\u0308ve", "Ångström", "A\u030angstro\u0308m", "日本語テキスト", "ﾊﾝｶｸ", "한국어", "\u1112\u1161\u11ab", "नमस्ते", "ภาษาไทย", "عَرَبِيّ", "עִבְרִית", "Ελλάδα",
    "Ｆｕｌｌ", "ﬁﬂ", "ǅ", "ß", "ẞ", "İı", "ſ", "K", "Å", "Ω", "a\u0301\u0302\u0303\u0323", "x\u0300" * 9, "Z̷͚̀a̸", "𝔘𝔫𝔦", "𐍈", "ᾳ", "Ⅷ", "½", "²", "१२३", "٣", "𝟘𝟙", "㊷", "一万", "〇",
    # Emoji and what holds them together.
    "🙂", "👩‍👩‍👧", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "❤️", "#️⃣", "\u200d", "\ufe0f", "\U000e0067",
    # White space and controls.
    " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\u200b", "\ufeff", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1f", "\x00", "\x07", "\x7f", "\x80", "\u180e", "\u00ad", "\u202e",
    "\u2060", "\ue000", "\uffff", "\ufffd", "\U0010ffff", "\u0378",
    # Special tokens, whole and broken.
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|im_end|", "|im_end|>", "< s>", "<unk>", "<pad>", "<0x0A>", "▁", "▁▁", "Ġ", "##", "<mask>", "<tool_call>", "</tool_call>",
    # Code, numbers and JSON.
    '{"name": "look_up", "arguments": {"a": [1.5e-3, null, true], "b": "\\u00e9\\n"}}', '{"a":1}', "```py\ndef f(x):\n\treturn x**2  # ok\n```", "1234567890", "3.14159", "1,000,000", "0x1F", "-12", "don't", "DON'T", "we'LL",
    "it’s", "'s", "'S", "'ſ", "I'm", "https://a.example/?q=1&b=%20", "a_b-c.d", "C:\\x\\y", "...", "!!!???", "—–-", "“quoted”", "$9.99", "a@b.c", "&amp;", "<b>x</b>", "\\u00e9", "%s", "__init__", "/*/", "~~~~",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "the", "The", "THE", "tokenizer", "look", "word", "a", "Z", "antidisestablishmentarianism",
]


def texts(rng):
    yield from [*json.loads((FOLDER / "probes.json").read_text()), "", *PIECES]
    for _ in range(COUNT):
        kind = rng.random()
        if kind < 0.75:
            separator = rng.choice(["", " ", " ", "\n"])
            yield separator.join(rng.choices(PIECES, k=rng.randint(2, 14)))
        elif kind < 0.9:
            characters = (chr(rng.randrange(0x20, 0x3000) if rng.random() < 0.7 else rng.randrange(0x110000)) for _ in range(rng.randint(1, 30)))
            # The originals go by an old version of Unicode, so newer characters are left out.
            yield "".join(each for each in characters if unicodedata.ucd_3_2_0.category(each) not in ("Cn", "Cs"))
        else:
            yield " ".join("".join(rng.choices("abcdefgXYZ0189'’-_ ", k=rng.randint(1, 9))) for _ in range(rng.randint(1, 20)))


def write_lines(path, lines):
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=True) + "\n")


def compare_tokenizers(rng):
    readable = [piece for piece in PIECES if piece.isprintable() and not piece.startswith("<")]
    lines = [" ".join(rng.choices(readable, k=12)) for _ in range(3000)]
    for kind, make in KINDS.items():
        folder = FOLDER / kind
        folder.mkdir(parents=True)
        tokenizer = make(lines)
        # Some models have tokens that take the white space beside them, or that are found in whole words only.
        tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
        tokenizer.save(str(folder / "tokenizer.json"))
        rows = []
        for text in texts(rng):
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            rows.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
        write_lines(folder / "texts.jsonl", rows)


def environment():
    """As the library that engines render with sets it up."""

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made


def conversations(rng):
    parameters = {"type": "object", "properties": {"word": {"type": "string", "description": "Ein “Wort”, <b> & 'so'"}, "n": {"type": "number", "default": 1.5}}, "required": ["word"]}
    tools = [{"type": "function", "function": {"name": name, "description": "Looks up.", "parameters": parameters}} for name in ("look_up", "add")]
    values = ["a", 1, -3, 2.5, 12345678901234, True, None, [], {}, ["x", {"y": [1, 2]}], "é\n\t\"\\/<>&' 日本 🙂\u2028"]
    for index in range(60):
        messages = [{"role": "system", "content": "Be brief.  \n"}] if rng.random() < 0.5 else []
        for turn in range(rng.randint(1, 4)):
            messages.append({"role": "user", "content": rng.choice(["Hi", "  spaced  ", "é 日本\n\n", "<|im_end|>{{ x }}", "a\r\nb"])})
            reply = {"role": "assistant", "content": rng.choice(["Fine.", "", "<think>\nhm\n</think>\n\nYes.", " x "])}
            if rng.random() < 0.4:
                reply["reasoning_content"] = reply["reasoning"] = rng.choice(["because", "\nlines\n\n", ""])
            calls = rng.randint(0, 2)
            if calls:
                reply["tool_calls"] = [
                    {"id": f"call{index:02}{turn}{call:02}", "type": "function",
                     "function": {"name": rng.choice(["look_up", "add"]), "arguments": {f"k{at}": value for at, value in enumerate(rng.sample(values, rng.randint(0, 4)))}}}
                    for call in range(calls)
                ]
                messages.append(reply)
                results = [{"role": "tool", "tool_call_id": call["id"], "content": rng.choice(["17", "", " é\n"])} for call in reply["tool_calls"]]
                messages.extend(results)
            else:
                messages.append(reply)
        if rng.random() < 0.7:
            messages.append({"role": "user", "content": "And now?"})
        yield {"messages": messages, "tools": tools if rng.random() < 0.6 else [], "addGenerationPrompt": rng.random() < 0.7,
               "variables": rng.choice([{}, {}, {"enable_thinking": False}])}


def compare_templates(rng):
    made = environment()
    inputs = list(conversations(rng))
    rows = []
    for path in sorted((Path(__file__).parent / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        template = made.from_string(source)
        for each in inputs:
            row = {"name": path.stem, "source": source, "input": each}
            given = {**each["variables"], "messages": each["messages"], "add_generation_prompt": each["addGenerationPrompt"]}
            if each["tools"]:
                given["tools"] = each["tools"]
            try:
                row["text"] = template.render(bos_token="<s>", eos_token="</s>", **given)
            except jinja2.exceptions.TemplateError as error:
                row["error"] = str(error)
            rows.append(row)
    write_lines(FOLDER / "templates.jsonl", rows)


compare_tokenizers(random.Random(1))
compare_templates(random.Random(2))
