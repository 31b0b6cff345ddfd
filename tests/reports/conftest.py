"""Run folders with known content: a simulated agent of which we know how often its reasoning reads the state.

With probability ``grounded`` a reasoning names the digits of its state (one in twenty is wrong), else it is filler that
has nothing to do with it. Its log-probabilities are exact, so the scorer is the sampler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tether.diagnostics import input_dependence, share_over_prompts
from tether.records import Episode, Rollouts, Turn
from tether.reports import DemoArm
from tether.results import Finding
from tether.runs import RunFolder
from tether.scoring import choose_rows, score_rows

DIGITS = ("0", "1", "2", "3")
GROUNDED = (("ok", "see", "look", "note"), ("player", "me", "start", "self"), ("goal", "target", "exit", "aim"))
GENERIC = (("well", "hmm", "now", "first"), ("we", "let", "one", "agent"), ("calmly", "slowly", "again", "deeply"))
VAGUE = ("path", "route", "ice", "risk")
MOVES = ("up", "down", "left", "right")
CELLS = tuple(f"{row},{column}" for row in DIGITS for column in DIGITS)
TAGS = ("<think>", "</think>", "<answer>", "</answer>", "P", "G", "H", "||")
WORDS = tuple(dict.fromkeys((*TAGS, *CELLS, *DIGITS, *sum(GROUNDED, ()), *sum(GENERIC, ()), *VAGUE, *MOVES)))
ID = {word: index for index, word in enumerate(WORDS)}
TYPO = 0.05


@dataclass(frozen=True)
class Channel:
    """The simulated reasoning: exact sampling and exact log-probabilities."""

    grounded: float

    def sample(self, state: Sequence[str], rng: np.random.Generator) -> list[str]:
        if rng.random() < self.grounded:
            named = [
                d if rng.random() > TYPO else str(rng.choice([x for x in DIGITS if x != d])) for d in digits(state)
            ]
            fillers = [str(rng.choice(words)) for words in GROUNDED]
            return [fillers[0], fillers[1], *named[:2], fillers[2], *named[2:]]
        return [str(rng.choice(words)) for words in GENERIC] + [str(rng.choice(VAGUE)) for _ in range(4)]

    def logprobs(self, state: Sequence[str], words: Sequence[str]) -> list[float]:
        """Log-probability of each word of a reasoning, and of the closing tag when it is there."""
        is_grounded = words[0] in GROUNDED[0]
        mode = math.log(max(self.grounded if is_grounded else 1 - self.grounded, 1e-12))
        expected = iter(digits(state))
        found = []
        for word in words:
            if word == "</think>":
                found.append(0.0)
            elif is_grounded and word in DIGITS:
                found.append(math.log(1 - TYPO if word == next(expected) else TYPO / 3))
            else:
                found.append(math.log(0.25))
        return [found[0] + mode, *found[1:]]

    def token_logprobs(
        self, contexts: Sequence[Sequence[int]], reasonings: Sequence[Sequence[int]]
    ) -> list[np.ndarray]:
        texts = [[WORDS[i] for i in ids] for ids in contexts]
        return [np.array([self.logprobs(text, [WORDS[i] for i in ids]) for text in texts]) for ids in reasonings]


def digits(context: Sequence[str]) -> list[str]:
    """The player's and the goal's cell of the last state of a context."""
    last = len(context) - 1 - context[::-1].index("P")
    return [*context[last + 1].split(","), *context[last + 3].split(",")]


def draw_state(rng: np.random.Generator) -> list[str]:
    cells = [CELLS[int(i)] for i in rng.permutation(16)[:5]]
    return [word for pair in zip("PGHHH", cells, strict=True) for word in pair]


def play(
    channel: Channel, *, step: int, groups: int, members: int, max_turns: int, seed: int, kind: str, dead: float = 0.0
) -> list[Episode]:
    episodes = []
    for group in range(groups):
        state = draw_state(np.random.default_rng([seed, group, len(kind), step if kind == "train" else 0]))
        is_dead = np.random.default_rng([seed, group, step]).random() < dead
        for member in range(members):
            rng = np.random.default_rng([seed, group, member, step])
            turns: list[Turn] = []
            history: list[str] = []
            success, current = False, state
            while len(turns) < max_turns and not success:
                context = [*history, *current, "<think>"]
                thought = channel.sample(current, rng)
                plan = [str(rng.choice(MOVES)) for _ in range(2)]
                reply = [*thought, "</think>", "<answer>", plan[0], "||", plan[1], "</answer>"]
                success = not is_dead and rng.random() < (0.75 if thought[0] in GROUNDED[0] else 0.12) / (
                    1 if max_turns == 1 else 2
                )
                following = draw_state(rng)
                turns.append(
                    Turn(
                        prompt_ids=tuple(ID[word] for word in context),
                        sampled_ids=tuple(ID[word] for word in reply),
                        logprobs=(*channel.logprobs(current, thought), *([0.0] * (len(reply) - len(thought)))),
                        logprob_mode="raw",
                        temperature=1.0,
                        finish="stop",
                        reasoning=slice(0, len(thought)),
                        action=f"{plan[0]} || {plan[1]}",
                        observation=" ".join(following),
                        reward=float(success),
                        prompt=" ".join(current),
                        reasoning_text=" ".join(thought),
                    )
                )
                history, current = [*context, *reply], following
            episodes.append(
                Episode(
                    episode_id=f"{kind}-{group}-{member}",
                    group_id=f"{kind}-{group:04d}",
                    env="frozen_lake",
                    step=step,
                    turns=tuple(turns),
                    reward=float(success),
                    components={"outcome": (float(success), 1.0), "format": (0.0, 1.0)},
                    success=success,
                    filter_state="pre",
                )
            )
    return episodes


@dataclass(frozen=True)
class Plan:
    """How a simulated run goes: how grounded it is at each step, and how much of it there is."""

    grounded: Callable[[int], float]
    steps: int = 20
    eval_every: int = 10
    prompts: int = 24
    samples: int = 2
    max_turns: int = 1
    dead: float = 0.9
    seed: int = 0
    select: dict[str, Any] | None = None
    findings: tuple[tuple[int, Finding], ...] = ()
    rollouts: bool = True


def write_run(runs_dir: Path, name: str, plan: Plan) -> RunFolder:
    """Write a run folder as the trainer does, through the real classes."""
    run = RunFolder.create(runs_dir, name)
    run.save_config(config(name, plan), {"tether": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "numpy": "2.4.1"})
    run.append_metrics({"step": 0, **evaluate(run, plan, 0)})
    run.append_timings({"step": 0, "eval": 0.8, "monitor": 0.3})
    for step in range(1, plan.steps + 1):
        line: dict[str, Any] = {"step": step, **train(run, plan, step)}
        if step % plan.eval_every == 0:
            line |= evaluate(run, plan, step)
        run.append_metrics(line)
        run.append_timings({"step": step, "play": 0.2, "update": 0.3, "monitor": 0.02})
    for step, finding in plan.findings:
        run.append_finding(step, finding)
    return run


def config(name: str, plan: Plan) -> dict[str, Any]:
    return {
        "name": name,
        "seed": plan.seed,
        "steps": plan.steps,
        "env": {"name": "frozen_lake", "options": {"max_turns": plan.max_turns, "dead_share": plan.dead}},
        "prompts": 24,
        "group_size": 8,
        "select": {
            "strategy": "top_p",
            "top_p": 0.9,
            "statistic": "variance",
            "control": "none",
            **(plan.select or {}),
        },
        "eval": {"prompts": plan.prompts, "samples": plan.samples, "every": plan.eval_every},
        "monitor": {"every": 5, "confidence": 0.95},
    }


def train(run: RunFolder, plan: Plan, step: int) -> dict[str, Any]:
    """The metric line of a training step; episodes are played only where their records are written."""
    if plan.rollouts and step in (1, plan.steps):
        episodes = play(
            Channel(plan.grounded(step)),
            step=step,
            groups=24,
            members=8,
            max_turns=plan.max_turns,
            seed=plan.seed,
            kind="train",
            dead=plan.dead,
        )
        Rollouts.from_episodes(episodes).to_parquet(run.rollouts_path(step))
        rewards = np.array([episode.reward for episode in episodes]).reshape(24, 8)
    else:
        rng = np.random.default_rng([plan.seed, step])
        alive = rng.random((24, 1)) > plan.dead
        rewards = (alive & (rng.random((24, 8)) < 0.12 + 0.6 * plan.grounded(step))).astype(float)
    live = int((rewards.std(axis=1) > 0).sum())
    kept = 24 if (plan.select or {}).get("strategy") == "none" else live
    return {
        "reward_mean": float(rewards.mean()),
        "success": float(rewards.mean()),
        "zero_variance_share": 1 - live / 24,
        "solved_share": float((rewards.min(axis=1) == 1).mean()),
        "failed_share": float((rewards.max(axis=1) == 0).mean()),
        "reply_tokens_mean": 13.0,
        "reasoning_tokens_mean": 7.0,
        "valid_format_share": 1.0,
        "truncated_reply_share": 0.0,
        "episodes": 192,
        "groups": 24,
        "kept_groups": kept,
        "rule_kept_share": live / 24,
        "regulariser_weight": 1.0,
        "num_updates": 2,
        "trained_tokens": kept * 8 * 13,
        "entropy": 0.9 - 0.002 * step,
        "kl": 0.01 * step**0.5,
        "grad_norm": 0.4 + 0.1 * math.sin(step),
    }


def evaluate(run: RunFolder, plan: Plan, step: int) -> dict[str, Any]:
    channel = Channel(plan.grounded(step))
    episodes = play(
        channel,
        step=step,
        groups=plan.prompts,
        members=plan.samples,
        max_turns=plan.max_turns,
        seed=plan.seed,
        kind="eval",
    )
    rollouts = Rollouts.from_episodes(episodes)
    rollouts.to_parquet(run.rollouts_path(step, "eval"))
    success = share_over_prompts("success", [bool(e.success) for e in episodes], [e.group_id for e in episodes])
    line: dict[str, Any] = {
        "eval/success": success.value,
        "eval/success/low": success.low,
        "eval/success/high": success.high,
        "eval/valid_format_share": 1.0,
        "eval/reasoning_tokens_mean": 7.0,
        "eval/token_forwards": 120_000,
    }
    for scope, turns in (("first_turn", "first"), ("later_turns", "later"))[: min(plan.max_turns, 2)]:
        rows = choose_rows(rollouts, turns=turns, seed=plan.seed)
        scores = score_rows(rows, channel)
        scores.save(run.scores_path(step, f"eval.{scope}"))
        for name, estimate in input_dependence(scores, seed=plan.seed).items():
            key = f"eval/{scope}/{name}"
            line |= {
                key: estimate.value,
                f"{key}/low": estimate.low,
                f"{key}/high": estimate.high,
                f"{key}/status": estimate.status,
            }
        line |= {f"eval/{scope}/{key}": value for key, value in rows.coverage.to_dict().items()}
    return line


def towards(start: float, end: float, steps: int) -> Callable[[int], float]:
    """A share that goes from start to end, fast first."""
    return lambda step: end + (start - end) * math.exp(-4 * step / steps)


COLLAPSE = Finding(
    "template_collapse",
    "critical",
    "first_turn, step 20: mi_sequence 0.11 nats [-0.02, 0.24] (bound 3.18, chance 0)",
    since=10,
    advice="Filter groups by reward variance, or lower the KL coefficient.",
)
ARMS = {
    "none": ("no filter", 0.03, {"strategy": "none"}, ((10, COLLAPSE), (20, COLLAPSE))),
    "filter": ("SNR-aware filter", 0.92, {}, ()),
    "random": ("random drop, same share", 0.05, {"control": "random_drop"}, ((20, COLLAPSE),)),
    "dose": ("no filter, regularisers × kept share", 0.95, {"control": "dose"}, ()),
}


def write_demo(
    runs_dir: Path, *, steps: int = 20, eval_every: int = 10, prompts: int = 24, samples: int = 2
) -> tuple[list[DemoArm], RunFolder]:
    """Write the runs of a whole demo, two seeds an arm."""
    arms = []
    for key, (label, end, select, findings) in ARMS.items():
        runs = tuple(
            write_run(
                runs_dir,
                f"{key}-seed{seed}",
                Plan(
                    towards(0.55, end, steps),
                    steps,
                    eval_every,
                    prompts,
                    samples,
                    seed=seed,
                    select=select,
                    findings=findings,
                ),
            )
            for seed in range(2)
        )
        arms.append(DemoArm(key, label, runs))
    note = Finding("dead_signal", "info", "failed_share 0.41 at step 20", since=15, advice="Ease the states.")
    default = Plan(
        towards(0.5, 0.95, steps),
        steps,
        eval_every,
        prompts,
        samples,
        max_turns=3,
        dead=0.0,
        findings=((15, note), (20, note)),
    )
    return arms, write_run(runs_dir, "default", default)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[DemoArm], RunFolder]:
    """The runs of a demo in which everything went as expected."""
    return write_demo(tmp_path_factory.mktemp("demo"))


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunFolder]:
    """Write one run folder; keywords are those of :class:`Plan`."""
    return lambda name="run", **plan: write_run(
        tmp_path, name, Plan(**{"grounded": towards(0.5, 0.9, 10), "steps": 10, **plan})
    )
