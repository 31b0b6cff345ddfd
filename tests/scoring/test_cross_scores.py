"""The cross log-probability matrix: what is refused, how duplicates merge, and how it is stored."""

import json
import math

import numpy as np
import pytest

from tether.errors import InputError, RecordError
from tether.scoring import CrossScores

NAN, INF = math.nan, math.inf


def example(**changes):
    given = {
        "logprob_MN": [[-1.0, -3.0, -3.0], [-4.0, -2.0, -2.0]],
        "own_M": [0, 2],
        "num_tokens_M": [2, 3],
    }
    return CrossScores(**given | changes)


def assert_same(left, right):
    for name in CrossScores.__dataclass_fields__:
        a, b = getattr(left, name), getattr(right, name)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
        else:
            assert a == b


def test_arrays_are_float64_copies_that_nobody_can_change():
    given = np.array([[-1.0, -3.0], [-4.0, -2.0]], dtype=np.float32)
    scores = CrossScores(given, [0, 1], [1, 1])
    given[0, 0] = 7.0
    assert scores.logprob_MN[0, 0] == -1.0
    assert scores.logprob_MN.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        scores.logprob_MN[0, 0] = 0.0


def test_default_kind_is_the_policy_and_every_pair_is_available():
    scores = example()
    assert scores.kind == "policy"
    assert (scores.num_rows, scores.num_contexts) == (2, 3)
    assert scores.available.all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logprob_MN": [-1.0, -2.0]}, r"logprob_MN has shape \(2,\): expected \(rows, contexts\)"),
        ({"logprob_MN": [[-1.0], [-1.0, -2.0]]}, "logprob_MN: .*expected an array of numbers"),
        ({"own_M": [0]}, r"own_M has shape \(1,\): expected \(2,\)"),
        ({"own_M": [0, 3]}, r"own_M\[1\] is 3: expected a column from 0 to 2"),
        ({"own_M": [-1, 0]}, r"own_M\[0\] is -1"),
        ({"own_M": [0, 0.5]}, "own_M: got float64 values that are not int64"),
        ({"own_M": [0, NAN]}, "own_M: got float64 values"),
        ({"num_tokens_M": [2, 0]}, r"num_tokens_M\[1\] is 0: expected at least 1 token"),
        ({"excluded_MN": [[True, False, False], [False] * 3]}, r"row 0: its own context \(column 0\) is excluded"),
        ({"excluded_MN": [[False, True], [False, False]]}, "excluded_MN has shape"),
        ({"weight_MN": [[1, 1, 1], [1, 1, 0]]}, "row 1: its own context has weight 0"),
        ({"weight_MN": [[1, -1, 1], [1, 1, 1]]}, "weight_MN: expected finite numbers of at least 0"),
        ({"weight_MN": [[1, NAN, 1], [1, 1, 1]]}, "weight_MN: expected finite"),
        ({"closing_MN": [[0.0, 0.0, 0.0]]}, "closing_MN has shape"),
        ({"behaviour_logprob_M": [-1.0]}, "behaviour_logprob_M has shape"),
        ({"contexts_N": ["a", "b"]}, "contexts_N has 2 entries: expected 3"),
        ({"contexts_N": [[1, 2], [3], [4]]}, "contexts_N: got a list.*Give token ids as a tuple"),
        ({"prompt_N": ["a"]}, "prompt_N has 1 entries"),
        ({"row_ids": ["a"]}, "row_ids has 1 entries: expected 2"),
        ({"kind": "oracle"}, "kind='oracle': expected one of policy, fixed, critic"),
    ],
)
def test_refuses_what_does_not_fit_together_and_names_it(changes, message):
    with pytest.raises(InputError, match=message):
        example(**changes)


def test_numbers_that_are_not_finite_are_kept_for_the_verdict_void():
    scores = example(logprob_MN=[[NAN, -3.0, -INF], [INF, -2.0, -INF]])
    assert np.isnan(scores.logprob_MN[0, 0])


def test_no_rows_is_legal():
    scores = CrossScores(np.empty((0, 3)), [], [], excluded_MN=[], contexts_N="aab")
    assert scores.merged().num_contexts == 2


def test_equal_contexts_become_one_column():
    merged = example(contexts_N=["a", "b", "b"], prompt_N=["p", "q", "q"]).merged()
    np.testing.assert_array_equal(merged.logprob_MN, [[-1.0, -3.0], [-4.0, -2.0]])
    assert merged.own_M.tolist() == [0, 1]
    assert merged.contexts_N == ("a", "b")
    assert merged.prompt_N == ("p", "q")
    assert merged.prompt_index.tolist() == [0, 1]


def test_none_merges_nothing():
    scores = example()
    assert scores.merged() is scores
    assert scores.prompt_index.tolist() == [0, 1, 2]


def test_merging_twice_changes_nothing():
    merged = example(contexts_N=[(1, 2), (3,), (3,)]).merged()
    assert merged.merged() is merged


def test_duplicates_may_differ_by_rounding_only():
    example(logprob_MN=[[-1.0, -3.0, -3.0 + 9e-7], [-4.0, -2.0, -2.0]], contexts_N="abb")
    with pytest.raises(InputError, match="columns 1 and 2 are the same context .* differ by up to 2e-06"):
        example(logprob_MN=[[-1.0, -3.0, -3.0 + 2e-6], [-4.0, -2.0, -2.0]], contexts_N="abb")
    with pytest.raises(InputError, match="differ by up to inf"):
        example(logprob_MN=[[-1.0, -3.0, -INF], [-4.0, -2.0, -2.0]], contexts_N="abb")


def test_duplicates_that_are_both_impossible_agree():
    merged = example(logprob_MN=[[-1.0, -INF, -INF], [-4.0, -2.0, -2.0]], contexts_N="abb").merged()
    assert merged.logprob_MN[0].tolist() == [-1.0, -INF]


def test_a_merged_column_takes_the_score_that_takes_part():
    merged = example(
        logprob_MN=[[-1.0, NAN, -3.0], [-4.0, -2.0, -2.0]],
        weight_MN=[[1, 0, 5], [1, 2, 1]],
        closing_MN=[[-0.1, NAN, -0.3], [-0.1, -0.2, -0.2]],
        contexts_N="abb",
    ).merged()
    np.testing.assert_array_equal(merged.logprob_MN, [[-1.0, -3.0], [-4.0, -2.0]])
    np.testing.assert_array_equal(merged.weight_MN, [[1, 5], [1, 2]])
    np.testing.assert_array_equal(merged.closing_MN, [[-0.1, -0.3], [-0.1, -0.2]])


def test_a_nan_that_takes_part_is_not_merged_away():
    merged = example(logprob_MN=[[-1.0, -3.0, NAN], [-4.0, -2.0, -2.0]], contexts_N="abb").merged()
    assert np.isnan(merged.logprob_MN[0, 1])


def test_a_context_is_excluded_with_its_duplicate():
    excluded_MN = [[False, False, True], [False, False, False]]
    merged = example(excluded_MN=excluded_MN, contexts_N="abb").merged()
    assert merged.excluded_MN.tolist() == [[False, True], [False, False]]


def test_an_excluded_duplicate_of_the_own_context_is_refused():
    with pytest.raises(InputError, match=r"row 0: a duplicate of its own context is excluded \(columns \[0, 1\]"):
        CrossScores([[-1.0, -1.0, -3.0]], [0], [1], contexts_N="aab", excluded_MN=[[False, True, False]])


def test_prompts_that_share_a_context_become_one_prompt():
    scores = CrossScores(
        np.zeros((1, 5)), [0], [1], contexts_N=["x", "y", "x", "z", "z"], prompt_N=["p", "p", "q", "q", "r"]
    )
    assert scores.merged().prompt_N == ("p", "p", "p")


def full_example():
    return CrossScores(
        [[-1.0, -INF, NAN], [-4.0, -2.0, -2.5]],
        own_M=[0, 2],
        num_tokens_M=[2, 3],
        contexts_N=[(1, 2, 3), ("a", (4, None)), 5],
        prompt_N=["ä", True, 2.5],
        excluded_MN=[[False, False, True], [False] * 3],
        weight_MN=[[1, 2, 0], [1, 1, 1]],
        closing_MN=[[-0.1, -0.2, NAN], [NAN] * 3],
        behaviour_logprob_M=[-1.0, NAN],
        row_ids=["r0", "r1"],
        kind="fixed",
    )


@pytest.mark.parametrize("scores", [example(), full_example(), CrossScores(np.empty((0, 0)), [], [])])
def test_a_saved_matrix_comes_back_as_it_was(scores, tmp_path):
    scores.save(tmp_path / "scores.npz")
    assert_same(CrossScores.load(tmp_path / "scores.npz"), scores)
    assert [path.name for path in tmp_path.iterdir()] == ["scores.npz"]


def test_numpy_scalars_as_labels_come_back_as_numbers(tmp_path):
    example(contexts_N=np.array([7, 8, 9]), prompt_N=[np.float64(0.5), 1, 2]).save(tmp_path / "s.npz")
    loaded = CrossScores.load(tmp_path / "s.npz")
    assert loaded.contexts_N == (7, 8, 9)
    assert loaded.prompt_N == (0.5, 1, 2)


def test_equal_scores_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        full_example().save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_label_that_cannot_be_stored_leaves_the_old_file(tmp_path):
    path = tmp_path / "scores.npz"
    example().save(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="contexts_N: cannot save a label of type frozenset"):
        example(contexts_N=[frozenset(), "b", "c"]).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["scores.npz"]


def rewrite(path, **changes):
    with np.load(path) as archive:
        arrays = dict(archive)
    for name, value in changes.items():
        if value is None:
            del arrays[name]
        else:
            arrays[name] = value
    np.savez(path, **arrays)


def as_bytes(value):
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"meta": as_bytes({"schema_version": 2, "kind": "policy"})}, "schema version 2, expected 1"),
        ({"meta": as_bytes({"kind": "policy"})}, "no cross scores in it"),
        ({"meta": as_bytes([1])}, "no cross scores in it"),
        ({"meta": np.array([255, 0], dtype=np.uint8)}, "no cross scores in it"),
        ({"meta": None}, "no cross scores in it"),
        ({"own_M": None}, "own_M missing"),
        ({"logprob_MN": np.array([{"code": "object"}], dtype=object)}, "no cross scores in it"),
    ],
)
def test_a_foreign_or_newer_file_is_refused(changes, message, tmp_path):
    path = tmp_path / "scores.npz"
    example().save(path)
    rewrite(path, **changes)
    with pytest.raises(RecordError, match=message):
        CrossScores.load(path)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 torn"])
def test_a_file_of_something_else_is_refused(content, tmp_path):
    path = tmp_path / "scores.npz"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="no cross scores in it"):
        CrossScores.load(path)


def test_a_torn_file_is_refused(tmp_path):
    path = tmp_path / "scores.npz"
    full_example().save(path)
    whole = path.read_bytes()
    for size in range(1, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(RecordError):
            CrossScores.load(path)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        CrossScores.load(tmp_path / "none.npz")
