"""The demo's order on one seed: without a filter reasoning loses its input, with it reasoning keeps it."""

import pytest

from tether.experiments.demo import DemoPlan, arm_config
from tether.training import parse_config, train
from tether.training.tiny.warm_start import prepare

MI, ENTROPY = "eval/first_turn/mi_sequence", "eval/first_turn/conditional_entropy"


@pytest.fixture(scope="module")
def arms(model_cache, tmp_path_factory):
    """The metric lines of two arms after 20 iterations from one warm start."""
    plan = DemoPlan(out=tmp_path_factory.mktemp("demo"), steps=20)
    models = {name: str(prepare(name)) for name in ("balanced", "template")}
    runs = {arm: train(parse_config(arm_config(plan, arm, 0, models))) for arm in ("none", "filter")}
    return {arm: run.read_metrics().rows for arm, run in runs.items()}


def test_the_filter_keeps_what_is_lost_without_it(arms):
    start, none, kept = arms["none"][0][MI], arms["none"][-1][MI], arms["filter"][-1][MI]
    assert arms["filter"][0] == arms["none"][0]
    assert none < 0.6 < start
    assert kept > none + 1.0
    assert arms["filter"][-1][f"{MI}/low"] > arms["none"][-1][f"{MI}/high"]


@pytest.mark.parametrize("arm", ["none", "filter"])
def test_entropy_does_not_show_the_loss(arms, arm):
    before, after = (arms[arm][step] for step in (0, -1))
    assert abs(after[ENTROPY] / before[ENTROPY] - 1) < 0.15
    assert after["eval/valid_format_share"] > 0.9


def test_success_shows_it(arms):
    assert arms["filter"][-1]["eval/success/low"] > arms["none"][-1]["eval/success/high"]


def test_the_filter_trains_on_few_groups_and_mostly_on_signal(arms):
    kept = [line["kept_groups"] for line in arms["filter"][1:]]
    assert max(kept) < 12
    assert all(line["kept_groups"] == 24 for line in arms["none"][1:])
    assert sum(line["trained_tokens"] for line in arms["filter"][1:]) < 0.3 * sum(
        line["trained_tokens"] for line in arms["none"][1:]
    )
