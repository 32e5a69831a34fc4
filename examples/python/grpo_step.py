"""One GRPO step from an export of training rows: python3 grpo_step.py train.rows [advantages.json]

    millrace export <run> --rows merged --format binary -o train.rows

Groups the sessions, turns the return of each reply into an advantage, builds a padded batch and takes one step of the clipped
policy gradient, as TRL's GRPOTrainer does, with the sampler's log-probabilities as importance weights. (Where only whole
sessions are rewarded, `--advantage grpo` does the first half: the advantages are then in the rows.) The policy is a toy, one
logit per token, whatever came before, so that it runs anywhere; with PyTorch the same step is taken there, and must come out
the same. It prints the step in one line; the second file gets the advantages, a list for each row.
"""

import json
import sys

import millrace
import numpy as np

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
    The rows to train on, those of sessions that came to nothing, and the sums of the export. Side calls are left out: whatever
    they were given says nothing of how the session did.
    """
    reader = millrace.read_rows(path)
    read = list(reader)
    if any(row.kind == "interaction" for row in read):
        raise SystemExit(f"{path} has interactions, not training rows; export with --rows merged")
    # The rows before the one that says so are not all of its session.
    damaged = {row.session for row in read if row.kind == "damaged"}
    whole = [row for row in read if row.session not in damaged]
    rows = [row for row in whole if row.kind == "merged" and row.main and not row.discarded and trained_samples(row)]
    empty = [row for row in whole if row.kind == "empty" and row.reward is not None]
    return rows, empty, reader.end


def trained_samples(row):
    """Its replies that are trained here and of which something is known. Each has a return of its own."""
    return [each for each in row.samples if each.trains and each.count > 0 and each.return_ is not None]


def group_of(row):
    """A name is a tenant's own: two may use the same."""
    return row.tenant, row.group


def group_advantages(rows, empty):
    """
    How much better than its group each reply of each row did. A session counts once in its group, however many replies it
    has; one without any counts too, or a group in which all others did well would have nobody to be better than.
    """
    sessions = {}
    for row in rows:
        returns = [sample.return_ for sample in trained_samples(row)]
        sessions.setdefault((group_of(row), row.session), []).extend(returns)
    for row in empty:
        sessions[group_of(row), row.session] = [row.reward]
    groups = {}
    for (group, _), returns in sessions.items():
        groups.setdefault(group, []).append(np.mean(returns))
    advantages = []
    for row in rows:
        returns = groups[group_of(row)]
        centre, spread = np.mean(returns), np.std(returns)
        # Where all sessions did equally well, or there is only one, there is nothing to compare a reply with: without this,
        # a branch that did better than the rest of its session would be divided by EPSILON alone.
        scale = 1 / (spread + EPSILON) if spread > EPSILON else 0.0
        advantages.append([float((sample.return_ - centre) * scale) for sample in trained_samples(row)])
    return advantages


def padded_batch(rows, advantages):
    """As a model takes them. The mask keeps what was padded, said or trained elsewhere out of the loss."""
    batch = {name: array.astype(float) for name, array in millrace.batch(rows, advantages=np.zeros(len(rows))).items()}
    batch["ids"] = batch["ids"].astype(int)
    known = np.zeros(batch["mask"].shape)
    for index, (row, of_samples) in enumerate(zip(rows, advantages)):
        for sample, advantage in zip(trained_samples(row), of_samples):
            batch["advantages"][index, sample.place] = advantage
            known[index, sample.place] = 1
    batch["mask"] *= known
    return batch


class Step:
    """
    The loss of a policy with one logit per token that occurs, and its gradient by hand: at the first step every ratio is 1, so
    it is that of the log-probability times its factor.
    """

    def __init__(self, batch):
        self.trained = batch["mask"] == 1
        tokens, self.places = np.unique(batch["ids"], return_inverse=True)
        self.places = self.places.reshape(batch["ids"].shape)
        self.size = len(tokens)
        self.batch = batch
        places = self.places[self.trained]
        self.old = log_softmax(np.zeros(self.size))[places]
        # How much likelier the token is to the policy than it was to the sampler, which may have had older weights; capped.
        behind = np.minimum(self.old - batch["logprobs"][self.trained], 50)
        self.weights = np.minimum(np.exp(behind), MAX_WEIGHT)

    def loss(self, logits):
        advantages = self.batch["advantages"][self.trained]
        ratio = np.exp(log_softmax(logits)[self.places[self.trained]] - self.old)
        return -np.mean(self.weights * np.minimum(ratio * advantages, np.clip(ratio, 1 - CLIP, 1 + CLIP) * advantages))

    def plain(self):
        """The loss before and after a step."""
        logits = np.zeros(self.size)
        factors = self.weights * self.batch["advantages"][self.trained] / self.trained.sum()
        gradient = factors.sum() * np.exp(log_softmax(logits))
        np.subtract.at(gradient, self.places[self.trained], factors)
        return self.loss(logits), self.loss(logits - LEARNING_RATE * gradient)

    def torch(self):
        """The same with tensors and autograd: in a real trainer, `logits` are the model's and come with every position."""
        names = ("mask", "logprobs", "advantages")
        mask, sampled, advantages = (torch.from_numpy(self.batch[name]) for name in names)
        places = torch.from_numpy(self.places)
        logits = torch.zeros(self.size, dtype=torch.float64, requires_grad=True)
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


def log_softmax(logits):
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def main(path, advantages_path=None):
    rows, empty, end = training_rows(path)
    if not rows:
        raise SystemExit(f"{path} has no row with a reward and a sampled token; nothing can be learnt from it")
    advantages = group_advantages(rows, empty)
    batch = padded_batch(rows, advantages)
    step = Step(batch)
    before, after = step.plain()
    if torch is not None:
        theirs = step.torch()
        assert np.allclose((before, after), theirs, atol=1e-6), (before, after, theirs)
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
                "tokens": int(batch["mask"].sum()),
                "replies": len(by_reply),
                "lowestAdvantage": min(by_reply),
                "highestAdvantage": max(by_reply),
                "before": float(before),
                "after": float(after),
                "torch": torch is not None,
            }
        )
    )


if __name__ == "__main__":
    files = sys.argv[1:]
    if not 1 <= len(files) <= 2 or files[0] in ("-h", "--help"):
        print(__doc__.strip())
        raise SystemExit(0 if files in (["-h"], ["--help"]) else 2)
    try:
        main(*files)
    except (OSError, millrace.MillraceError) as problem:
        raise SystemExit(str(problem))
