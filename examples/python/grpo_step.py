"""One GRPO step from an export of training rows: python3 grpo_step.py train.rows [advantages.json]

    millrace export <run> --rows merged --format binary -o train.rows

Groups the sessions, turns returns into advantages, builds padded batches and takes one step of the clipped policy gradient,
as TRL's GRPOTrainer does, with the sampler's log-probabilities as importance weights. The policy is a toy (one logit per
token, whatever came before), so that it runs anywhere; with PyTorch the same step is taken there, and must come out the same.
It prints the step in one line; the second file gets the advantages, a list for each row.
"""

import json
import math
import sys

from millrace_rows import read_rows, run

try:
    import torch
except ImportError:
    torch = None

CLIP = 0.2
MAX_WEIGHT = 2.0
LEARNING_RATE = 0.05
EPSILON = 1e-4


def training_rows(path):
    """
    The rows to train on, those of sessions that came to nothing, and the row that says that the export is whole. Side calls
    (main: false) are left out: whatever they were given says nothing of how the session did.
    """
    rows, empty, damaged, end = [], [], set(), None
    for row in read_rows(path):
        if row["kind"] == "end":
            end = row
        elif row["kind"] == "interaction":
            raise SystemExit(f"{path} has interactions, not training rows; export with --rows merged")
        elif row["kind"] == "damaged":
            damaged.add(row["session"])
        elif row["kind"] == "empty" and row["reward"] is not None:
            empty.append(row)
        elif row["kind"] == "merged" and row["main"] and row["discarded"] is None and trained_samples(row):
            rows.append(row)
    if end is None:
        raise SystemExit(f"{path} was cut off; export it again")
    # What stands before the row that says so is not all of its session.
    rows, empty = ([row for row in each if row["session"] not in damaged] for each in (rows, empty))
    return rows, empty, end


def trained_samples(row):
    """Its replies that are trained here and of which something is known. Each has a return of its own."""
    return [each for each in row["samples"] if each["trains"] and each["count"] > 0 and each["return"] is not None]


def mean(values):
    return sum(values) / len(values)


def group_of(row):
    """A name is a tenant's own: two may use the same."""
    return row["tenant"], row["group"]


def group_advantages(rows, empty):
    """
    How much better than its group each reply of each row did. A session counts once in its group, however many replies it
    has; one without any counts too, or a group in which all others did well would have nobody to be better than.
    """
    sessions = {}
    for row in rows:
        returns = [sample["return"] for sample in trained_samples(row)]
        sessions.setdefault((group_of(row), row["session"]), []).extend(returns)
    for row in empty:
        sessions[group_of(row), row["session"]] = [row["reward"]]
    groups = {}
    for (group, _), returns in sessions.items():
        groups.setdefault(group, []).append(mean(returns))
    advantages = []
    for row in rows:
        returns = groups[group_of(row)]
        centre = mean(returns)
        spread = math.sqrt(mean([(each - centre) ** 2 for each in returns]))
        # Where all sessions did equally well, or there is only one, there is nothing to compare a reply with: without this,
        # a branch that did better than the rest of its session would be divided by EPSILON alone.
        scale = 1 / (spread + EPSILON) if spread > EPSILON else 0.0
        advantages.append([(sample["return"] - centre) * scale for sample in trained_samples(row)])
    return advantages


def padded_batch(rows, advantages):
    """Lists of one length, as a model takes them. The mask keeps what was padded, said or trained elsewhere out of the loss."""
    length = max(len(row["ids"]) for row in rows)
    batch = {"ids": [], "mask": [], "sampled": [], "advantages": []}

    def pad(values):
        values = list(values)
        return values + [0] * (length - len(values))

    for row, of_samples in zip(rows, advantages):
        mask, by_token = [0] * length, [0.0] * length
        for sample, advantage in zip(trained_samples(row), of_samples):
            place = slice(sample["start"], sample["start"] + sample["count"])
            mask[place] = map(int, row["mask"][place])
            by_token[place] = [advantage] * sample["count"]
        batch["ids"].append(pad(map(int, row["ids"])))
        batch["mask"].append(mask)
        batch["sampled"].append(pad(map(float, row["logprobs"])))
        batch["advantages"].append(by_token)
    return batch


class ToyPolicy:
    """One logit per token that occurs."""

    def __init__(self, batch):
        tokens = sorted({token for ids in batch["ids"] for token in ids})
        self.index = {token: place for place, token in enumerate(tokens)}
        self.logits = [0.0] * len(tokens)

    def logprobs(self):
        top = max(self.logits)
        total = top + math.log(sum(math.exp(logit - top) for logit in self.logits))
        return [logit - total for logit in self.logits]


def trained_tokens(batch, policy):
    """(place of the token in the policy, sampler's log-probability, advantage) of everything that the mask lets through."""
    for row in zip(*(batch[name] for name in ("ids", "mask", "sampled", "advantages"))):
        for token, trains, logprob, advantage in zip(*row):
            if trains:
                yield policy.index[token], logprob, advantage


def weight_of(old, sampled):
    """How much likelier the token is to the policy than it was to the sampler, which may have had older weights; capped."""
    return min(math.exp(min(old - sampled, 50.0)), MAX_WEIGHT)


def loss_of(batch, policy, old):
    new = policy.logprobs()
    losses = []
    for place, sampled, advantage in trained_tokens(batch, policy):
        ratio = math.exp(new[place] - old[place])
        clipped = min(max(ratio, 1 - CLIP), 1 + CLIP)
        losses.append(-weight_of(old[place], sampled) * min(ratio * advantage, clipped * advantage))
    return mean(losses)


def plain_step(batch, policy):
    """The gradient by hand: at the first step every ratio is 1, so it is that of the log-probability times its factor."""
    old = policy.logprobs()
    before = loss_of(batch, policy, old)
    tokens = list(trained_tokens(batch, policy))
    gradient = [0.0] * len(old)
    total = 0.0
    for place, sampled, advantage in tokens:
        factor = weight_of(old[place], sampled) * advantage / len(tokens)
        gradient[place] -= factor
        total += factor
    for place, logprob in enumerate(old):
        gradient[place] += total * math.exp(logprob)
    policy.logits = [logit - LEARNING_RATE * slope for logit, slope in zip(policy.logits, gradient)]
    return before, loss_of(batch, policy, old)


def torch_step(batch, policy):
    """The same with tensors and autograd: in a real trainer, `logits` are the model's and come with every position."""
    places = torch.tensor([[policy.index[token] for token in ids] for ids in batch["ids"]])
    mask = torch.tensor(batch["mask"], dtype=torch.float64)
    sampled = torch.tensor(batch["sampled"], dtype=torch.float64)
    advantages = torch.tensor(batch["advantages"], dtype=torch.float64)
    logits = torch.zeros(len(policy.index), dtype=torch.float64, requires_grad=True)
    old = torch.log_softmax(logits, 0)[places].detach()
    weights = torch.exp(torch.clamp(old - sampled, max=50.0)).clamp(max=MAX_WEIGHT)

    def loss():
        ratio = torch.exp(torch.log_softmax(logits, 0)[places] - old)
        gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
        return -(weights * gain * mask).sum() / mask.sum()

    optimizer = torch.optim.SGD([logits], lr=LEARNING_RATE)
    before = loss()
    before.backward()
    optimizer.step()
    return before.item(), loss().item()


def main(path, advantages_path=None):
    rows, empty, end = training_rows(path)
    if not rows:
        raise SystemExit(f"{path} has no row with a reward and a sampled token; nothing can be learnt from it")
    advantages = group_advantages(rows, empty)
    batch = padded_batch(rows, advantages)
    before, after = plain_step(batch, ToyPolicy(batch))
    if torch is not None:
        theirs = torch_step(batch, ToyPolicy(batch))
        assert all(abs(a - b) < 1e-6 for a, b in zip((before, after), theirs)), (before, after, theirs)
    if advantages_path is not None:
        with open(advantages_path, "w", encoding="utf-8") as file:
            json.dump(advantages, file)
    by_reply = [advantage for of_samples in advantages for advantage in of_samples]
    assert after <= before, f"the step made it worse: {before} to {after}"
    print(
        json.dumps(
            {
                "rows": len(rows),
                "groups": len({group_of(row) for row in rows}),
                "emptySessions": end["emptySessions"],
                "damagedSessions": end["damagedSessions"],
                "tokens": sum(map(sum, batch["mask"])),
                "replies": len(by_reply),
                "lowestAdvantage": min(by_reply),
                "highestAdvantage": max(by_reply),
                "before": before,
                "after": after,
                "torch": torch is not None,
            }
        )
    )


if __name__ == "__main__":
    run(main, __doc__, most_files=2)
