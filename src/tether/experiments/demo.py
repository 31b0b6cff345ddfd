"""The demo: template collapse, its cure, and the controls that say what the cure may claim.

Four arms start from one warm start whose generic, input-blind mode was planted, under a KL term towards a reference
that is almost only generic, on states of which nine in ten are dead: (a) every group trains, (b) the reward-variance
filter, (c) as many groups as the filter would keep, at random, (d) every group, with the regularisers multiplied by the
share that the filter would keep. One run of the default configuration follows.
"""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tether.reports import DemoArm, write_demo_report
from tether.runs import RunFolder
from tether.training.config import parse_config

OnProgress = Callable[[str, int, int, str], None]
DEFAULT_RUN = "default"
ARMS = {
    "none": ("no filter", {"strategy": "none"}),
    "filter": ("SNR-aware filter", {"strategy": "top_p"}),
    "random": ("random drop, same share", {"strategy": "top_p", "control": "random_drop"}),
    "dose": ("no filter, regularisers × kept share", {"strategy": "top_p", "control": "dose"}),
}
LAKE = {"holes": 2, "min_distance": 1, "max_turns": 1, "actions_per_turn": 8, "dead_share": 0.9}


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """How large the demo is and where it goes."""

    out: Path = Path("runs/demo")
    seeds: int = 2
    steps: int = 40
    default_steps: int = 40
    jobs: int = 2


def arm_config(plan: DemoPlan, arm: str, seed: int, models: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration of one arm: they differ in ``select`` and in nothing else."""
    return {
        "name": f"{arm}-seed{seed}",
        "runs_dir": str(plan.out),
        "seed": seed,
        "steps": plan.steps,
        "model": models["balanced"],
        "reference": models["template"],
        "env": {"name": "frozen_lake", "options": LAKE, "format_penalty": 0.0},
        "prompts": 24,
        "group_size": 8,
        "select": ARMS[arm][1],
        "loss": {"kl_coef": 0.3, "kl_kind": "k2", "entropy_coef": 0.0, "clip_low": 0.2, "clip_high": 0.28},
        "optim": {"lr": 3e-4},
        "generate": {"max_reply_tokens": 30},
        "eval": {"every": 10, "prompts": 64, "samples": 4},
        "monitor": {"every": plan.steps},
        "checkpoint": {"every": 0, "rollouts_every": 0},
    }


def default_config(plan: DemoPlan) -> dict[str, Any]:
    """Return the configuration that ``tether train`` has without arguments, in the demo's folder."""
    return {"name": DEFAULT_RUN, "runs_dir": str(plan.out), "steps": plan.default_steps}


def run_demo(plan: DemoPlan, on_progress: OnProgress = lambda name, done, total, note: None) -> Path:
    """Prepare the warm starts, train everything that is not trained yet, and write ``report.html``.

    A demo that was interrupted goes on where it stopped.
    """
    _train_all(plan, on_progress)
    report = plan.out / "report.html"
    arms = [
        DemoArm(arm, label, tuple(RunFolder.open(plan.out / f"{arm}-seed{seed}") for seed in range(plan.seeds)))
        for arm, (label, _) in ARMS.items()
    ]
    write_demo_report(arms, RunFolder.open(plan.out / DEFAULT_RUN), report)
    return report


def _train_all(plan: DemoPlan, on_progress: OnProgress) -> None:
    """Prepare both warm starts and start the runs of each as soon as it is there; the first failure ends everything."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(plan.jobs, mp_context=context) as pool:
        events: queue.Queue[tuple[str, int, int, str]] = manager.Queue()
        lake = pool.submit(_prepare_models, ("lake",), events)
        balanced = pool.submit(_prepare_models, ("balanced", "template"), events)
        waiting: list[Future[Any]] = [lake, balanced]
        try:
            while waiting or not events.empty():
                for future in [future for future in waiting if future.done()]:
                    waiting.remove(future)
                    models = future.result()
                    trees = _runs_after(plan, models) if future in (lake, balanced) else []
                    waiting += [pool.submit(_train, tree, events) for tree in trees]
                with suppress(queue.Empty):
                    on_progress(*events.get(timeout=0.2))
        finally:
            pool.shutdown(cancel_futures=True)


def _runs_after(plan: DemoPlan, models: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the runs that a set of prepared models makes possible."""
    if "balanced" not in models:
        return [default_config(plan)]
    return [arm_config(plan, arm, seed, models) for seed in range(plan.seeds) for arm in ARMS]


def _prepare_models(names: tuple[str, ...], events: Any) -> dict[str, str]:
    import torch

    from tether.training.tiny.warm_start import prepare

    torch.set_num_threads(1)
    folders = {}
    for name in names:
        folders[name] = str(
            prepare(name, lambda model, step, steps: events.put((f"warm start: {model}", step, steps, "")))
        )
    return folders


def _train(tree: dict[str, Any], events: Any) -> None:
    import torch

    from tether.training.loop import train

    torch.set_num_threads(1)
    folder = Path(tree["runs_dir"]) / tree["name"]
    config = parse_config({**tree, "resume": folder.exists()})

    def on_step(line: dict[str, Any]) -> None:
        success = line.get("eval/success")
        note = "" if success is None else f"unseen success {success:.2f}"
        events.put((tree["name"], line["step"], config.steps, note))

    train(config, on_step)
