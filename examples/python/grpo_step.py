"""One GRPO step from an export of training rows: python3 grpo_step.py train.rows

    millrace export <run> --rows merged --format binary -o train.rows

Groups the rows, turns rewards into advantages, builds padded batches and takes one step of the clipped policy gradient,
as TRL's GRPOTrainer does, with the sampler's log-probabilities as importance weights. The policy is a toy (one logit per
token, whatever came before), so that it runs anywhere; with PyTorch the same step is taken there, and must come out the same.
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
    """The rows to train on, and the row that says that the export is whole."""
    rows, end = [], None
    for row in read_rows(path):
        if row["kind"] == "end":
            end = row
        elif row["kind"] == "merged" and row["reward"] is not None and row["discarded"] is None:
            rows.append(row)
    if end is None:
        raise SystemExit(f"{path} was cut off; export it again")
    return rows, end


def mean(values):
    return sum(values) / len(values)


def group_advantages(rows):
    """How much better than its group each row did. A session counts once in its group, however many rows it has."""
    sessions = {}
    for row in rows:
        sessions.setdefault((row["group"], row["session"]), []).append(row["reward"])
    groups = {}
    for (group, _), rewards in sessions.items():
        groups.setdefault(group, []).append(mean(rewards))
    advantages = []
    for row in rows:
        rewards = groups[row["group"]]
        centre = mean(rewards)
        spread = math.sqrt(mean([(reward - centre) ** 2 for reward in rewards]))
        # Where all sessions did equally well, or there is only one, there is nothing to compare a row with: without this,
        # a branch that did better than the rest of its session would be divided by EPSILON alone.
        advantages.append((row["reward"] - centre) / (spread + EPSILON) if spread > EPSILON else 0.0)
    return advantages


def padded_batch(rows, advantages):
    """Lists of one length, as a model takes them. The mask keeps what was padded, said or trained elsewhere out of the loss."""
    length = max(len(row["ids"]) for row in rows)

    def pad(values):
        values = list(values)
        return values + [0] * (length - len(values))

    return {
        "ids": [pad(map(int, row["ids"])) for row in rows],
        "mask": [pad(map(int, row["mask"])) for row in rows],
        "sampled": [pad(map(float, row["logprobs"])) for row in rows],
        "advantages": advantages,
    }


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
    for ids, mask, sampled, advantage in zip(*(batch[name] for name in ("ids", "mask", "sampled", "advantages"))):
        for token, trains, logprob in zip(ids, mask, sampled):
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
    advantages = torch.tensor(batch["advantages"], dtype=torch.float64).unsqueeze(1)
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


def main(path):
    rows, end = training_rows(path)
    if not any(any(row["mask"]) for row in rows):
        raise SystemExit(f"{path} has no row with a reward and a sampled token; nothing can be learnt from it")
    advantages = group_advantages(rows)
    batch = padded_batch(rows, advantages)
    before, after = plain_step(batch, ToyPolicy(batch))
    if torch is not None:
        theirs = torch_step(batch, ToyPolicy(batch))
        assert all(abs(a - b) < 1e-6 for a, b in zip((before, after), theirs)), (before, after, theirs)
    assert after <= before, f"the step made it worse: {before} to {after}"
    print(
        json.dumps(
            {
                "rows": len(rows),
                "groups": len({row["group"] for row in rows}),
                "emptySessions": end["emptySessions"],
                "tokens": sum(map(sum, batch["mask"])),
                "advantages": advantages,
                "before": before,
                "after": after,
                "torch": torch is not None,
            }
        )
    )


if __name__ == "__main__":
    run(main, __doc__)
