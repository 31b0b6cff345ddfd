"""Environments by name."""

import sys

import pytest

from tether.envs import Bandit, Environment, FrozenLake, make, names
from tether.errors import ConfigError

OWN = """
class Own:
    name, max_turns, actions_per_turn, instructions = "own", 1, 1, "Do."
    def __init__(self, *, size, colour="red"): self.size = size
    def reset(self, seed, *, noise_seed=None): return str(seed), {}
    def step(self, text): return "", 0.0, True, False, {}
def anything(**options): return options
number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_module.py").write_text(OWN)
    (tmp_path / "broken_module.py").write_text("import a_module_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_module", None)
    sys.modules.pop("broken_module", None)


def test_built_in_environments_are_made_by_name_with_their_options():
    assert names() == ["bandit", "countdown", "frozen_lake", "identity", "sokoban"]
    for name in names():
        env = make(name, split="validation")
        assert isinstance(env, Environment)
        assert env.name == name
    assert isinstance(make("bandit", arms=3), Bandit)
    lake = make("frozen_lake", size=5, view="grid")
    assert isinstance(lake, FrozenLake)
    assert (lake.size, lake.view) == (5, "grid")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("frozenlake", {}, "unknown environment 'frozenlake'.*did you mean 'frozen_lake'?"),
        ("zzz", {}, "expected one of bandit, countdown, frozen_lake, identity, sokoban, or module:Class for your own$"),
        ("frozen_lake", {"sise": 4}, "has no option 'sise'.*did you mean 'size'?"),
        ("frozen_lake", {"name": "x"}, "has no option 'name'"),
        ("frozen_lake", {"size": 0}, "size is 0"),
    ],
)
def test_unknown_names_and_options_are_refused_with_the_nearest_match(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make(name, **options)


def test_own_environments_are_imported(own):
    env = make("own_module:Own", size=2)
    assert isinstance(env, Environment)
    assert env.size == 2
    assert make("own_module:anything", whatever=1) == {"whatever": 1}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("own_module:Own", {}, "needs the option 'size'"),
        ("own_module:Own", {"size": 1, "color": "x"}, "did you mean 'colour'"),
        ("own_module:own", {}, "no class or function 'own'.*did you mean 'Own'"),
        ("own_module:number", {}, "no class or function 'number'"),
        ("missing_module:Own", {}, "no module 'missing_module'.*PYTHONPATH"),
        ("missing_package.module:Own", {}, "no module 'missing_package'"),
        (":Own", {}, "'' is no module name"),
        ("./own_module.py:Own", {}, "'./own_module.py' is no module name; expected package.module:Class"),
        ("own_module:", {}, "no class or function ''"),
    ],
)
def test_own_environments_that_cannot_be_made_are_refused(own, name, options, message):
    with pytest.raises(ConfigError, match=message):
        make(name, **options)


def test_a_failing_import_inside_the_users_module_is_not_hidden(own):
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_missing"):
        make("broken_module:Own")
