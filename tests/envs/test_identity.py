"""Identity: repeat the word."""

import pytest

from tether.envs import Identity
from tether.errors import ConfigError


def test_the_right_answer_is_the_word_that_is_shown():
    env = Identity()
    for seed in range(100):
        word, _ = env.reset(seed)
        assert env.step(word.title()) == (
            word,
            1.0,
            True,
            False,
            {"actions": [word], "invalid_actions": 0, "success": True},
        )


def test_every_other_answer_pays_nothing():
    env = Identity(words=["yes", "no"])
    word, _ = env.reset(0)
    (other,) = env.neighbours(0)
    assert {word, other} == {"yes", "no"}
    assert env.step(other)[1:4] == (0.0, True, False)
    env.reset(0)
    assert env.step("maybe") == (word, 0.0, False, True, {"actions": [], "invalid_actions": 1, "success": False})
    env.reset(0)
    assert env.step(f"{other} || {word}")[1] == 0.0


def test_every_word_is_drawn_in_both_splits():
    for split in ("train", "validation"):
        env = Identity(split=split)
        assert {env.reset(seed)[0] for seed in range(400)} == set(env.words)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": ["one"]}, "at least 2 distinct"),
        ({"words": ["one", "One"]}, "at least 2 distinct"),
        ({"words": ["one", "two three"]}, "two three"),
        ({"words": ["one", ""]}, "without white space"),
        ({"split": "dev"}, "split is 'dev'"),
    ],
)
def test_words_that_cannot_be_answers_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Identity(**options)
