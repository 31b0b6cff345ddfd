"""The warm start: trained once, cached by what its weights depend on."""

from dataclasses import replace

import pytest
import torch

from tether.chat import PLAIN, THINK_FORCED, PromptBuilder, parse_reply
from tether.errors import ConfigError
from tether.policies import build_tiny, load_policy
from tether.training.config import parse_config
from tether.training.setup import resolve_model
from tether.training.supervised import FitConfig, fit
from tether.training.tiny import warm_start
from tether.training.tiny.recipes import RECIPES
from tether.training.tiny.warm_start import demonstrations, prepare, recipe_for

QUICK = replace(RECIPES["identity"], name="identity", fit=FitConfig(steps=3, lr=1e-3), batch=4)


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """The identity recipe cut to three steps, in an empty cache."""
    monkeypatch.setenv("TETHER_CACHE", str(tmp_path))
    monkeypatch.setitem(RECIPES, "identity", QUICK)
    return tmp_path


def test_the_second_call_trains_nothing(quick):
    steps = []
    first = prepare("identity", lambda name, step, total: steps.append((name, step, total)))
    assert steps == [("identity", 1, 3), ("identity", 2, 3), ("identity", 3, 3)]
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    second = prepare("identity", lambda *_: pytest.fail("trained again"))
    assert second == first
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*")} == before


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 22},
        {"batch": 5},
        {"fit": FitConfig(steps=3, lr=2e-3)},
        {"words": (*QUICK.words, "more")},
        {"env": {"words": ("apple", "bread")}},
    ],
)
def test_another_recipe_is_another_folder(quick, monkeypatch, change):
    first = prepare("identity")
    monkeypatch.setitem(RECIPES, "identity", replace(QUICK, **change))
    assert prepare("identity") != first


def test_another_parent_or_code_is_another_folder(quick, monkeypatch):
    for name in ("balanced_base", "balanced"):
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], fit=QUICK.fit, batch=4))
    first = prepare("balanced")
    monkeypatch.setitem(RECIPES, "balanced_base", replace(RECIPES["balanced_base"], seed=22))
    second = prepare("balanced")
    monkeypatch.setattr(warm_start, "CODE_VERSION", warm_start.CODE_VERSION + 1)
    assert len({first, second, prepare("balanced")}) == 3


def test_a_recipe_gives_the_same_weights_wherever_it_is_made(quick, monkeypatch, tmp_path):
    first = load_policy(prepare("identity"))
    torch.manual_seed(7)
    monkeypatch.setenv("TETHER_CACHE", str(tmp_path / "elsewhere"))
    second = load_policy(prepare("identity"))
    assert all(torch.equal(value, second.model.state_dict()[name]) for name, value in first.model.state_dict().items())


def test_the_identity_start_knows_the_format_and_not_the_answer(identity_model):
    policy = load_policy(identity_model)
    recipe = RECIPES["identity"]
    builder = PromptBuilder(
        policy.tokenizer, template=PLAIN, style=THINK_FORCED, system=None, max_context=64, reply_budget=1
    )
    for sample in next(demonstrations(recipe, policy)):
        start = sample.sampled.index(True)
        assert all(sample.sampled[start:])
        parsed = parse_reply(sample.ids[start:], policy.tokenizer, THINK_FORCED, stop_ids=builder.stop_ids)
        assert parsed.valid
        assert sample.ids[:start] == builder.build([], policy.tokenizer.decode(sample.ids[1])).ids


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_demonstration_is_well_formed_and_known_to_the_tokenizer(name):
    recipe = RECIPES[name]
    size = recipe.size
    policy = build_tiny(recipe.words, width=8, heads=2, max_positions=size.max_positions, seed=0)
    unknown, closing = policy.tokenizer.unk_token_id, policy.tokenizer.convert_tokens_to_ids("</answer>")
    for sample in next(demonstrations(recipe, policy)):
        assert unknown not in sample.ids
        assert len(sample.ids) <= size.max_positions
        assert sample.ids[-1] == closing
        assert sample.sampled[-1]


def test_fit_minimises_the_likelihood_of_the_targets_alone():
    recipe = RECIPES["identity"]
    policy = build_tiny(recipe.words, width=16, heads=2, max_positions=32, seed=0)
    losses = list(fit(policy, demonstrations(replace(recipe, batch=8), policy), FitConfig(steps=30, lr=0.02)))
    assert losses[0] > 4.0
    assert losses[-1] < 2.5
    assert not policy.model.training


def test_the_rate_rises_and_falls_as_configured():
    rates = [FitConfig(steps=10, lr=1.0, warmup=2, final_share=0.1).rate(step) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates == sorted(rates[:2]) + sorted(rates[2:], reverse=True)
    assert 0.1 < rates[-1] < 0.2
    assert [FitConfig(steps=5, lr=1.0).rate(step) for step in range(5)] == [1.0] * 5


def test_the_tiny_model_of_an_environment_is_that_of_its_recipe(quick):
    assert resolve_model(parse_config({"env": "identity"}), "tiny") == prepare("identity")
    assert recipe_for("identity") == "identity"
    with pytest.raises(ConfigError, match="model=tiny with env=bandit: .*; give a model folder, model=PATH"):
        recipe_for("bandit")
