"""Settings of all tests, and models that several rooms' tests share, made once a test run."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; child processes inherit it

# A timing never decides a test, and a red CI run can be repeated.
settings.register_profile("tether", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tether")


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all workers of this run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def model_cache(shared_folder: Path) -> Iterator[Path]:
    """Prepared models of this run: never those of the user, and none is trained twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TETHER_CACHE", str(shared_folder / "cache"))
        yield shared_folder / "cache"


@pytest.fixture(scope="session")
def identity_model(model_cache: Path) -> Path:
    """The tiny model of the identity environment: it knows the format, and answers at random."""
    from tether.training.tiny.warm_start import prepare

    return prepare("identity")


@pytest.fixture(scope="session")
def lake_model(shared_folder: Path) -> Path:
    """A half-trained model of the multi-turn lake: most replies are well-formed, some are cut, few reach the goal."""
    folder = shared_folder / "lake"
    with FileLock(shared_folder / "lake.lock"):
        if not folder.exists():
            _train_lake().save(folder)
    return folder


CHAT_WORDS = ("user", "assistant")
THOUGHTS = ("well", "okay", "think", "plan", "carefully", "again")
MOVES = ("left", "down", "right", "up")


def _train_lake():
    from tether.policies import build_tiny
    from tether.training.supervised import FitConfig, fit
    from tether.training.tiny.words import vocabulary

    policy = build_tiny(vocabulary(CHAT_WORDS), width=32, layers=2, heads=2, max_positions=192, seed=1)
    schedule = FitConfig(steps=60, lr=5e-3, warmup=10, final_share=0.1, betas=(0.9, 0.98), max_grad_norm=1.0)
    for _ in fit(policy, _lake_demonstrations(policy), schedule):
        pass
    return policy


def _lake_demonstrations(policy):
    from tether.randomness import keyed_rng
    from tether.training.batch import samples_of

    step = 0
    while True:
        rng = keyed_rng(5, "demonstrations", step)
        episodes = [_lake_episode(policy, rng) for _ in range(16)]
        yield [sample for episode in episodes for sample in samples_of(episode, 0)]
        step += 1


def _lake_episode(policy, rng):
    """Random thoughts of two to six words, then one or two random moves a turn."""
    from tether.chat import PLAIN, THINK_FORCED, PastTurn, PromptBuilder
    from tether.envs import FrozenLake
    from tether.records import Episode, Turn

    env = FrozenLake()
    builder = PromptBuilder(
        policy.tokenizer, template=PLAIN, style=THINK_FORCED, system=None, max_context=192, reply_budget=1
    )
    state, _ = env.reset(int(rng.integers(2**31)))
    past, turns, done = [], [], False
    while not done:
        thought, plan = rng.choice(THOUGHTS, rng.integers(2, 7)), rng.choice(MOVES, rng.integers(1, 3))
        reply = f"{' '.join(thought)} </think> <answer> {' '.join(plan)} </answer>"
        sampled = tuple(policy.tokenizer.encode(reply, add_special_tokens=False))
        prompt = builder.build(past, state).ids
        turns.append(Turn(prompt_ids=prompt, sampled_ids=sampled, logprobs=(0.0,) * len(sampled)))
        past.append(PastTurn(state, sampled))
        state, _, terminated, truncated, _ = env.step(" ".join(plan))
        done = terminated or truncated
    return Episode("demonstration", turns=tuple(turns))
