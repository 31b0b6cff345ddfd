"""States from seeds, and the train/validation split by content."""

import hashlib
import math

import pytest

from tether.envs import Bandit, FrozenLake, draw_in_split, split_of
from tether.envs.splits import VALIDATION_SHARE
from tether.errors import ConfigError


def digits(rng):
    return int(rng.integers(1000))


def test_validation_share_is_one_in_eight():
    contents = [f"content {i}" for i in range(20_000)]
    share = sum(split_of(content) == "validation" for content in contents) / len(contents)
    assert abs(share - VALIDATION_SHARE) < 5 * math.sqrt(VALIDATION_SHARE * (1 - VALIDATION_SHARE) / len(contents))


def test_side_is_the_leading_bits_of_the_sha256_of_the_content():
    for i in range(500):
        leading = hashlib.sha256(f"content {i}".encode()).digest()[0]
        assert (split_of(f"content {i}") == "validation") == (leading < 32)


def test_draw_is_a_pure_function_of_seed_and_split():
    draws = [draw_in_split(3, "train", digits, str) for _ in range(3)]
    assert len(set(draws)) == 1
    assert len({draw_in_split(seed, "train", digits, str) for seed in range(50)}) > 40


def test_draw_lies_in_the_split_and_is_accepted():
    for split in ("train", "validation"):
        for seed in range(100):
            number = draw_in_split(seed, split, digits, str, accept=lambda n: n % 2 == 0)
            assert split_of(str(number)) == split
            assert number % 2 == 0


def test_draw_gives_up_with_an_error_that_shows_the_last_candidate():
    with pytest.raises(
        ConfigError, match=r"no validation state found in 7 draws with seed 0.*last candidate was '\d+'"
    ):
        draw_in_split(0, "validation", digits, str, accept=lambda n: False, max_tries=7)


@pytest.mark.parametrize("make", [FrozenLake, Bandit])
def test_thousands_of_training_and_validation_states_share_none(make):
    seen = {split: {env.reset(seed)[0] for seed in range(3000)} for split in ("train", "validation")
            for env in [make(split=split)]}  # fmt: skip
    assert not seen["train"] & seen["validation"]
    assert min(len(states) for states in seen.values()) > 2000


def test_lakes_are_disjoint_across_views_and_dynamics_and_dead_states():
    def states(split, **options):
        env = FrozenLake(split=split, **options)
        return {env.reset(seed) and env.state for seed in range(2000)}

    train = states("train") | states("train", dead_share=0.9) | states("train", success_rate=0.5, max_turns=1)
    validation = states("validation", view="grid") | states("validation", dead_share=0.9, min_distance=1)
    assert not train & validation
