"""Which groups of rollouts train."""

from tether.selection.controls import random_selection
from tether.selection.groups import Selection, select_groups
from tether.selection.rule import select_by_score
from tether.selection.settings import select_options

__all__ = ["Selection", "random_selection", "select_by_score", "select_groups", "select_options"]
