"""The selection rule on scores."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tether.errors import InputError, NonFiniteError
from tether.selection import select_by_score

score_lists = st.lists(st.integers(0, 10**6).map(lambda x: x / 1000), min_size=1, max_size=12)
shares = st.integers(0, 99).map(lambda x: x / 100)
every_rule = st.one_of(
    st.fixed_dictionaries({"top_p": shares}),
    st.fixed_dictionaries({"fraction": shares}),
    st.fixed_dictionaries({"count": st.integers(0, 15)}),
    st.fixed_dictionaries({"min_p": shares}),
)


@settings(deadline=None)
@given(scores=score_lists, top_p=shares, keep=st.sampled_from(["largest", "smallest"]), zeros=st.booleans())
@example(scores=[0.1] * 10, top_p=0.8, keep="largest", zeros=False)
@example(scores=[0.1] * 10, top_p=0.3, keep="smallest", zeros=True)
def test_the_kept_prefix_is_ranked_and_minimal_in_exact_arithmetic(scores, top_p, keep, zeros):
    kept = select_by_score(scores, top_p=top_p, keep=keep, include_zero=zeros).tolist()
    exact = [Fraction(str(score)) for score in scores]
    sign = -1 if keep == "largest" else 1
    ranking = sorted((n for n, x in enumerate(exact) if zeros or x), key=lambda n: (sign * exact[n], n))
    assert kept == ranking[: len(kept)]
    total, share = sum(exact), Fraction(str(top_p))
    target = (share - Fraction(1, 10**9)) * total
    sums = [Fraction(0), *itertools.accumulate(exact[n] for n in ranking)]
    if target <= 0:
        assert kept == []
    else:
        assert sums[len(kept)] >= target > sums[len(kept) - 1]


@settings(deadline=None)
@given(scores=score_lists, rule=every_rule, scale=st.floats(1e-150, 1e150))
def test_scaling_all_scores_changes_nothing(scores, rule, scale):
    scaled = [score * scale for score in scores]
    assert select_by_score(scaled, **rule).tolist() == select_by_score(scores, **rule).tolist()


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e307])
def test_scores_at_the_ends_of_float64_keep_their_share(scale):
    scores = np.array([1.0, 8.0, 3.0, 8.0]) * scale
    assert select_by_score(scores, top_p=0.5).tolist() == [1, 3]


@settings(deadline=None)
@given(scores=score_lists, rule=every_rule, random=st.randoms(use_true_random=False))
def test_positions_matter_for_ties_only(scores, rule, random):
    order = random.sample(range(len(scores)), len(scores))
    kept = [scores[n] for n in select_by_score(scores, **rule)]
    shuffled = [scores[n] for n in order]
    assert [shuffled[n] for n in select_by_score(shuffled, **rule)] == kept


@settings(deadline=None)
@given(scores=score_lists)
def test_one_keeps_everything(scores):
    for rule in ({"top_p": 1.0}, {"fraction": 1.0}):
        assert sorted(select_by_score(scores, include_zero=True, **rule)) == list(range(len(scores)))
        assert sorted(select_by_score(scores, **rule)) == np.flatnonzero(scores).tolist()


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, [3, 0, 1]),  # top_p = 0.9 of a total of 11
        ({"top_p": 0.5}, [3, 0]),
        ({"top_p": 0.0}, []),
        ({"fraction": 0.4}, [3, 0]),
        ({"fraction": 0.19}, []),
        ({"fraction": 0.0, "min_keep": 1}, [3]),
        ({"top_p": 0.1, "min_keep": 2}, [3, 0]),
        ({"count": 1}, [3]),
        ({"count": 0}, [3]),
        ({"count": 9}, [3, 0, 1, 4]),
        ({"min_p": 0.4}, [3, 0, 1]),
        ({"min_p": 1.0}, [3]),
        ({"min_p": 0.0, "include_zero": True}, [3, 0, 1, 4, 2]),
        ({"min_p": 0.5, "keep": "smallest"}, [4, 1]),  # as many as largest would keep, from the other end
        ({"strategy": "top_k", "fraction": 0.4}, [3, 0]),
        ({"strategy": "top_p"}, [3, 0, 1]),
        ({"selection_eps": 2.0}, [3, 0]),
        ({"selection_eps": 99.0}, []),
        ({"top_p": 0.4, "keep": "smallest"}, [4, 1, 0]),
    ],
)
def test_each_rule_on_one_list(options, kept):
    assert select_by_score([3.0, 2.0, 0.0, 5.0, 1.0], **options).tolist() == kept


def test_the_floor_of_a_share_loses_no_group_to_rounding():
    for size, percent in itertools.product(range(1, 120), range(101)):
        kept = select_by_score(np.arange(1.0, size + 1), fraction=percent / 100)
        assert len(kept) == size * percent // 100


@pytest.mark.parametrize("keep", ["largest", "smallest"])
def test_softmax_mass_equals_enumeration_and_depends_on_the_unit(keep):
    scores = np.array([0.5, 2.0, 0.0, 1.2])
    sign = 1 if keep == "largest" else -1
    for unit, top_p in itertools.product([0.1, 1.0, 10.0, 1e4], [0.3, 0.6, 0.9]):
        logits = sign * unit * scores
        share = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        order = np.argsort(-share, kind="stable")
        length = next(k for k in range(1, 5) if share[order[:k]].sum() >= top_p - 1e-9)
        options = {"mass": "softmax", "top_p": top_p, "keep": keep, "include_zero": True}
        assert select_by_score(unit * scores, **options).tolist() == order[:length].tolist()
    small, large = (select_by_score(u * scores, mass="softmax", include_zero=True) for u in (0.1, 10.0))
    assert len(small) == 4
    assert len(large) == 1


def test_the_released_rule_takes_tiny_scores_for_zero():
    scores = [1e-11, 3e-11]
    assert select_by_score(scores).tolist() == [1, 0]
    assert select_by_score(scores, profile="compat").tolist() == []
    assert select_by_score(scores, profile="compat", include_zero=True).tolist() == [1, 0]


def test_the_released_rule_keeps_nothing_when_an_ascending_prefix_starts_with_zero():
    options = {"keep": "smallest", "include_zero": True, "top_p": 0.5}
    assert select_by_score([0, 1, 2, 3], **options).tolist() == [0, 1, 2]
    assert select_by_score([0, 1, 2, 3], profile="compat", **options).tolist() == []


def test_negative_scores_have_no_share_of_a_total():
    scores = [2.0, -1.0]
    with pytest.raises(InputError, match="linear top_p rule"):
        select_by_score(scores)
    assert select_by_score(scores, profile="compat").tolist() == []
    assert select_by_score(scores, count=1).tolist() == [0]
    assert select_by_score(scores, top_p=1.0).tolist() == [0, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("profile", ["tether", "compat"])
def test_a_score_that_is_not_finite_is_refused(bad, profile):
    with pytest.raises(NonFiniteError, match="position 1"):
        select_by_score([1.0, bad], profile=profile)


def test_no_scores_select_nothing():
    for rule in ({}, {"count": 3}, {"min_p": 0.5}, {"fraction": 1.0}, {"mass": "softmax"}):
        assert select_by_score([], include_zero=True, **rule).tolist() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_p": 1.5}, "1 keeps all"),
        ({"top_p": -0.1}, "between 0 and 1"),
        ({"top_p": float("nan")}, "between 0 and 1"),
        ({"fraction": 90}, "is it a percentage"),
        ({"min_p": 1.01}, "1 keeps all"),
        ({"count": -1}, "whole number"),
        ({"count": 1.5}, "whole number"),
        ({"min_keep": -1}, "min_keep"),
        ({"top_p": 0.9, "fraction": 0.5}, "top_p=0.9, fraction=0.5; expected one of"),
        ({"count": 2, "min_p": 0.5}, "expected one of"),
        ({"strategy": "top_k"}, "expected fraction"),
        ({"strategy": "top_k_abs"}, "expected count"),
        ({"strategy": "min_p", "top_p": 0.9}, "strategy='top_p'"),
        ({"strategy": "topp"}, "did you mean 'top_p'"),
        ({"mass": "lineal"}, "did you mean 'linear'"),
        ({"keep": "larger"}, "did you mean 'largest'"),
        ({"profile": "ragen"}, "expected one of tether, compat"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        select_by_score([1.0, 2.0], **options)


def test_scores_must_be_one_a_group():
    with pytest.raises(InputError, match=r"shape \(2, 2\)"):
        select_by_score(np.ones((2, 2)))
