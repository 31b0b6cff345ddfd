"""Identity: answer with the word you see. The cheapest proof that a trainer learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tether.envs.options import check_choice
from tether.envs.splits import SPLITS, Split
from tether.envs.turn_based import TurnBasedEnvironment
from tether.errors import ConfigError
from tether.randomness import keyed_rng

WORDS = (
    *("apple", "bread", "cloud", "dance", "eagle", "flame", "grape", "house"),
    *("island", "jewel", "kite", "lemon", "moon", "north", "ocean", "pearl"),
)


class Identity(TurnBasedEnvironment):
    """One turn: the observation is a word, the right answer is the same word, reward 1 if it is and 0 otherwise.

    Both splits hold all words: this environment asks whether a trainer learns at all, and a word that was never
    trained would have nothing to say about that.

    Args:
        words: The words to draw from, at least 2, distinct, without white space and separators.
        split: Accepted like everywhere; see above.
    """

    name = "identity"
    max_turns = 1
    actions_per_turn = 1

    def __init__(self, *, words: Sequence[str] = WORDS, split: Split = "train") -> None:
        check_choice("split", split, SPLITS)
        if len(words) < 2 or len({word.casefold() for word in words}) < len(words):
            raise ConfigError(f"words are {list(words)}; expected at least 2 distinct words. Change words.")
        if broken := [word for word in words if not word or any(c.isspace() or c in "|," for c in word)]:
            raise ConfigError(f"words hold {broken}; expected words without white space, commas and bars.")
        self.words = tuple(words)
        self._word = self._answer = ""
        self.instructions = "The state is one word. Answer with the same word. You have 1 turn."

    @property
    def example_action(self) -> str:
        """A valid answer in every state."""
        return self.words[0]

    def neighbours(self, seed: int) -> list[str]:
        """Return every other word: each asks for another answer."""
        word = self._draw(seed)
        return [other for other in self.words if other != word]

    def _draw(self, seed: int) -> str:
        return self.words[int(keyed_rng(seed, "state").integers(len(self.words)))]

    def _begin(self, seed: int) -> dict[str, Any]:
        self._word, self._answer = self._draw(seed), ""
        return {}

    def _observe(self) -> str:
        return self._word

    def _legal_actions(self) -> Sequence[str]:
        return self.words

    def _execute(self, action: str) -> tuple[float, bool]:
        self._answer = action
        return float(self._succeeded()), True

    def _succeeded(self) -> bool:
        return self._answer == self._word
