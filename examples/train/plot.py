"""What the runs have shown: sums, a plot for a page (SVG) and one for the terminal."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any

Results = list[dict[str, Any]]

#: In the order in which they are run and named, with their colours and their letters in the terminal.
CONDITIONS = ("direct", "millrace", "faults", "naive")
_TITLES = {
    "direct": "direct calls, no faults",
    "millrace": "through Millrace, no faults",
    "faults": "through Millrace, 10% faults and kills",
    "naive": "direct calls, 10% faults, scored as 0",
}
_COLOURS = {"direct": "#5f6b7a", "millrace": "#1f6feb", "faults": "#1a7f37", "naive": "#c2410c"}
#: A single evaluation of a policy varies by a percent, so the last few make the final score.
_FINAL = 3


def final_score(run: dict[str, Any]) -> float:
    return statistics.mean(score for _, score in run["scores"][-_FINAL:])


def summary(results: Results) -> dict[str, Any]:
    return {name: _sums(runs) for name, runs in _by_condition(results).items()}


def _by_condition(results: Results) -> dict[str, Results]:
    found = {name: [run for run in results if run["condition"] == name] for name in CONDITIONS}
    return {name: runs for name, runs in found.items() if runs}


def _sums(runs: Results) -> dict[str, Any]:
    finals = [final_score(run) for run in runs]

    def total(name: str) -> int:
        return sum(run[name] for run in runs)

    def counts(name: str) -> dict[str, int]:
        return dict(sum((Counter(run[name]) for run in runs), Counter()))

    return {
        "seeds": [run["seed"] for run in runs],
        "first": statistics.mean(run["scores"][0][1] for run in runs),
        "final": statistics.mean(finals),
        "finals": finals,
        "deviation": statistics.stdev(finals) if len(finals) > 1 else None,
        "seconds": [run["seconds"] for run in runs],
        "stepSeconds": statistics.median(second for run in runs for second in run["step_seconds"]),
        **{name: total(name) for name in ("asked", "received", "scored", "rows", "split_rows")},
        **{name: counts(name) for name in ("outcomes", "injected", "kills")},
        "largestDifference": max(run["largest_difference"] for run in runs),
    }


def terminal(results: Results, width: int = 64, height: int = 16) -> str:
    """A plot of letters, and a line for each condition."""
    cells = [[" "] * (width + 1) for _ in range(height + 1)]
    low = _lowest(results)
    for name, runs in _by_condition(results).items():
        curve = _curve(runs, "scores")
        last = curve[-1][0]
        for step, mean, _, _ in curve:
            row, column = round((1 - mean) / (1 - low) * height), round(step / last * width)
            cells[row][column] = name[0] if cells[row][column] == " " else "*"
    lines = [f"{1 - (1 - low) * row / height:5.2f} |{''.join(cell)}" for row, cell in enumerate(cells)]
    lines.append(f"      0{'-' * width} {max(run['scores'][-1][0] for run in results)} steps")
    lines.append("* several of them")
    for name, sums in summary(results).items():
        spread = f"{min(sums['finals']):.3f} to {max(sums['finals']):.3f}"
        # The naive trainer made these up: nobody has given them a reward.
        zeros = sums["outcomes"].get("fault", 0)
        made_up = f" and {zeros} zeros" if zeros else ""
        lines.append(
            f"{name[0]} {_TITLES[name]:38} {sums['first']:.3f} -> {sums['final']:.3f} ({spread}), "
            f"{sums['received']} of {sums['asked']} rollouts came back, {sums['scored'] - zeros} with a reward{made_up}, "
            f"{sums['stepSeconds']:.2f} s a step"
        )
    return "\n".join(lines)


def _lowest(results: Results) -> float:
    """The lower end of the axis, a multiple of a tenth."""
    least = min(min(point[2] for runs in _by_condition(results).values() for point in _curve(runs, "scores")), 0.9)
    seen = [mean for run in results for _, mean, *_ in _seen([run])]
    return math.floor(10 * min(least, *seen)) / 10


def _curve(runs: Results, name: str) -> list[tuple[float, float, float, float]]:
    """Step, mean, least and most over the seeds."""
    curves = [run[name] for run in runs]
    points = []
    for at in range(min(map(len, curves))):
        values = [curve[at][1] for curve in curves]
        points.append((curves[0][at][0], statistics.mean(values), min(values), max(values)))
    return points


def _seen(runs: Results, window: int = 10) -> list[tuple[float, float, float, float]]:
    """The reward as the trainer sees it, over steps of a window."""
    smooth = [
        {"seen": [(at + window / 2, statistics.mean(run["rewards"][at : at + window])) for at in range(0, len(run["rewards"]), window)]}
        for run in runs
    ]
    return _curve(smooth, "seen")


_LEFT, _TOP, _WIDTH, _HEIGHT = 52, 44, 560, 300


def svg(results: Results) -> str:
    """Means over the seeds, with all seeds within the bands. Dashed: the reward as the naive trainer sees it."""
    conditions = _by_condition(results)
    steps = max(run["scores"][-1][0] for run in results)
    low = _lowest(results)

    def x(step: float) -> float:
        return _LEFT + _WIDTH * step / steps

    def y(score: float) -> float:
        return _TOP + _HEIGHT * (1 - score) / (1 - low)

    def path(points: list[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{x(step):.1f},{y(score):.1f}" for step, score in points)

    def text(at_x: float, at_y: float, words: str, rest: str = "") -> str:
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" {rest}>{words}</text>'

    parts = [text(_LEFT, 22, "Score on tasks that are held out", 'font-size="15" font-weight="600"')]
    for tenth in range(round(low * 10), 11):
        parts.append(f'<path d="M{_LEFT},{y(tenth / 10):.1f}h{_WIDTH}" stroke="#e5e7eb"/>')
        parts.append(text(_LEFT - 8, y(tenth / 10) + 4, f"{tenth / 10:.1f}", 'text-anchor="end"'))
    for part in range(5):
        parts.append(text(x(steps * part / 4), _TOP + _HEIGHT + 20, f"{steps * part / 4:.0f}", 'text-anchor="middle"'))
    parts.append(text(_LEFT + _WIDTH, _TOP + _HEIGHT + 38, "steps", 'text-anchor="end"'))
    legend = _TOP + _HEIGHT + 62
    for name, runs in conditions.items():
        colour, curve = _COLOURS[name], _curve(runs, "scores")
        band = [(step, most) for step, _, _, most in curve] + [(step, least) for step, _, least, _ in reversed(curve)]
        parts.append(f'<path d="{path(band)}Z" fill="{colour}" opacity="0.14"/>')
        parts.append(f'<path d="{path([(step, mean) for step, mean, *_ in curve])}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<path d="M{_LEFT},{legend - 4}h26" stroke="{colour}" stroke-width="3"/>')
        final = statistics.mean(map(final_score, runs))
        parts.append(text(_LEFT + 36, legend, f"{_TITLES[name]}: {final:.3f} in the end, {len(runs)} seeds"))
        legend += 20
    if naive := conditions.get("naive"):
        colour = _COLOURS["naive"]
        seen = path([(step, mean) for step, mean, *_ in _seen(naive)])
        parts.append(f'<path d="{seen}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="5 4"/>')
        parts.append(f'<path d="M{_LEFT},{legend - 4}h26" stroke="{colour}" stroke-width="2" stroke-dasharray="5 4"/>')
        parts.append(text(_LEFT + 36, legend, "the same trainer's own count, with a 0 for each lost rollout"))
        legend += 20
    size = f'width="{_LEFT + _WIDTH + 28}" height="{legend}" viewBox="0 0 {_LEFT + _WIDTH + 28} {legend}"'
    style = 'font-family="system-ui, sans-serif" font-size="13" fill="#1f2937"'
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join([ground, *parts]) + "\n</svg>\n"
