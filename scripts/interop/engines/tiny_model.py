"""Makes a tiny chat model in Hugging Face format: tiny_model.py FOLDER

It is trained for some seconds to write what engines and clients spell anew: words of random tokens, of which most come back
from their text as other tokens, reasoning, and tool calls in several spellings. No file of another model is needed.
"""

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2Config, Qwen2ForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
VOCABULARY = 1024
STEPS, BATCH, LENGTH = 400, 8, 192

# Engines build the tokenizer of this architecture with these rules, whatever the file says.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Leaves out the reasoning of earlier replies, and writes arguments anew.
TEMPLATE = Path(__file__).parent.parent / "tokenizers" / "templates" / "qwen3-like.jinja"

# The same call as models spell it.
CALLS = [
    '<tool_call>\n{"name": "look_up", "arguments": {"word": "@", "language": "en"}}\n</tool_call>',
    '<tool_call>\n{"name":"look_up","arguments":{"language":"de","word":"@"}}\n</tool_call>',
    '<tool_call>{"arguments": { "word" : "@" , "language" : "en" }, "name": "look_up"}</tool_call>',
]


def made_words(rng, count):
    parts = ["ka", "lo", "mi", "ter", "an", "the", "ing", "re", "st", "or", "al", "is", "con", "ver", "日", "é", "🙂"]
    return ["".join(rng.choices(parts, k=rng.randint(1, 4))) for _ in range(count)]


def make_tokenizer(rng):
    words = made_words(rng, 3000)
    lines = [" ".join(rng.choices(words, k=12)) + json.dumps({"name": "look_up", rng.choice(words): 1}) for _ in range(4000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), "isolated"), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    size = VOCABULARY - len(TAGS)
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet))
    # As in models that are served: tags are tokens, but no special ones.
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return tokenizer


class Texts:
    """Conversations as ids, and which of them the model is to write."""

    def __init__(self, tokenizer, rng):
        self.rng = rng
        self.ids = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        self.any = range(len(SPECIAL), tokenizer.get_vocab_size() - len(TAGS))
        self.end = tokenizer.token_to_id("<|im_end|>")
        # Arguments stay JSON.
        texts = {token: tokenizer.decode([token]) for token in self.any}
        self.quotable = [token for token, text in texts.items() if text.isprintable() and not set(text) & set('"\\')]

    def noise(self, tokens, mean):
        return self.rng.choices(tokens, k=min(40, 1 + int(self.rng.expovariate(1 / mean))))

    def reply(self):
        ids = self.ids("<think>\n") + self.noise(self.any, 6) + self.ids("\n</think>\n\n") if self.rng.random() < 0.5 else []
        ids += self.noise(self.any, 8)
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            before, after = self.rng.choice(CALLS).split("@")
            ids += self.ids(before) + self.noise(self.quotable, 4) + self.ids(after)
        return ids + [self.end]

    def conversation(self):
        ids, written = self.noise(self.any, 20), []
        written += [False] * len(ids)
        while len(ids) <= LENGTH:
            question = self.ids("<|im_start|>user\n") + self.noise(self.any, 8) + self.ids("<|im_end|>\n<|im_start|>assistant\n")
            reply = self.reply()
            ids += question + reply + self.ids("\n")
            written += [False] * len(question) + [True] * len(reply) + [False]
        return ids[:LENGTH], written[:LENGTH]


def trained(texts):
    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=False, eos_token_id=texts.end,
                         bos_token_id=None, pad_token_id=0)
    model = Qwen2ForCausalLM(config).to(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    for step in range(STEPS):
        ids, written = zip(*(texts.conversation() for _ in range(BATCH)))
        ids = torch.tensor(ids)
        labels = torch.where(torch.tensor(written), ids, -100)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1, (step + 1) / 20) * (1 - step / STEPS)
        optimizer.step()
    print(f"loss {loss.item():.2f} after {STEPS} steps")
    return model


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    rng = random.Random(0)
    tokenizer = make_tokenizer(rng)
    model = trained(Texts(tokenizer, rng))
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = config_ids(tokenizer)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text())
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None,
                "model_max_length": 4096, "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def config_ids(tokenizer):
    return tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")


main()
