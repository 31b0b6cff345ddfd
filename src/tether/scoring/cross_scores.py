"""The cross log-probability matrix: how likely is every reasoning under every context.

Shapes: ``_M`` reasonings (rows), ``_N`` contexts (columns). Log-probabilities are summed over the tokens of a
reasoning, in nats, float64.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError
from tether.scoring import cross_scores_npz

MERGE_TOLERANCE = 1e-6

Floats = NDArray[np.float64]
ScorerKind = Literal["policy", "fixed", "critic"]


@dataclass(frozen=True, slots=True, eq=False)
class CrossScores:
    """Scores of M reasonings under N contexts, with what a statistic needs to read them.

    Arguments are anything NumPy can turn into an array; they are copied and made read-only.

    Args:
        logprob_MN: Log-probability of reasoning m under context n, summed over its tokens, in nats. A pair that is
            excluded or not scored may hold anything, NaN included. ``-inf`` for another context is legal (the trace is
            impossible there). A NaN, a ``+inf``, or an own score that is not finite is kept as it is and makes every
            estimate void.
        own_M: Column of the context that produced the reasoning.
        num_tokens_M: Tokens of the reasoning, at least 1.
        contexts_N: One hashable a context (its token ids as a tuple, a digest ...); equal ones are the same context
            and are merged by :meth:`merged`. None merges nothing.
        prompt_N: The initial state that each context belongs to, one hashable a context: the unit of intervals and of
            the null. None makes every distinct context its own prompt.
        excluded_MN: True where the context contains the reasoning (a later turn of the same episode): the pair takes no
            part in that row's mixture, ranking, chance and bound. Never True for the own context.
        weight_MN: For budgeted scoring, how many contexts a scored one stands for; 0 means not scored. Only the ratios
            inside a row matter. None scores every pair with weight 1.
        closing_MN: Log-probability of the sampled closing token after the reasoning, for the self-check only; a row of
            NaN where none was sampled (truncated).
        behaviour_logprob_M: Log-probability of the reasoning as stored when it was sampled, summed; NaN where missing.
        row_ids: One name a row, to find it in the records.
        kind: "policy" (the scorer is the model that sampled), "fixed" (one model for the whole run) or "critic".

    Raises:
        InputError: Shapes or lengths disagree, an index is out of range, an own pair is excluded or has weight 0, a
            reasoning is empty, or columns of equal context differ by more than 1e-6 nats.

    >>> scores = CrossScores([[-1.0, -3.0], [-4.0, -2.0]], own_M=[0, 1], num_tokens_M=[2, 3])
    >>> scores.num_rows, scores.num_contexts, scores.kind
    (2, 2, 'policy')
    """

    logprob_MN: Floats
    own_M: NDArray[np.int64]
    num_tokens_M: NDArray[np.int64]
    contexts_N: tuple[Hashable, ...] | None = None
    prompt_N: tuple[Hashable, ...] | None = None
    excluded_MN: NDArray[np.bool_] | None = None
    weight_MN: Floats | None = None
    closing_MN: Floats | None = None
    behaviour_logprob_M: Floats | None = None
    row_ids: tuple[Hashable, ...] | None = None
    kind: ScorerKind = "policy"

    def __post_init__(self) -> None:
        if self.kind not in get_args(ScorerKind):
            raise InputError(f"kind={self.kind!r}: expected one of {', '.join(get_args(ScorerKind))}.")
        logprob_MN = _array("logprob_MN", self.logprob_MN, np.float64)
        if logprob_MN.ndim != 2:
            raise InputError(f"logprob_MN has shape {logprob_MN.shape}: expected (rows, contexts), two axes.")
        M, N = logprob_MN.shape
        put = object.__setattr__
        put(self, "logprob_MN", logprob_MN)
        put(self, "own_M", _array("own_M", self.own_M, np.int64, (M,)))
        put(self, "num_tokens_M", _array("num_tokens_M", self.num_tokens_M, np.int64, (M,)))
        for name, dtype, shape in (
            ("excluded_MN", np.bool_, (M, N)),
            ("weight_MN", np.float64, (M, N)),
            ("closing_MN", np.float64, (M, N)),
            ("behaviour_logprob_M", np.float64, (M,)),
        ):
            if getattr(self, name) is not None:
                put(self, name, _array(name, getattr(self, name), dtype, shape))
        for name, length in (("contexts_N", N), ("prompt_N", N), ("row_ids", M)):
            if getattr(self, name) is not None:
                put(self, name, _labels(name, getattr(self, name), length))
        self._check_rows()
        self._check_duplicates()

    @property
    def num_rows(self) -> int:
        """Reasonings scored, M."""
        return int(self.logprob_MN.shape[0])

    @property
    def num_contexts(self) -> int:
        """Columns, N; distinct contexts only after :meth:`merged`."""
        return int(self.logprob_MN.shape[1])

    @property
    def available(self) -> NDArray[np.bool_]:
        """True where a pair takes part: scored and not excluded."""
        available_MN = np.ones(self.logprob_MN.shape, dtype=np.bool_)
        if self.excluded_MN is not None:
            available_MN &= ~self.excluded_MN
        if self.weight_MN is not None:
            available_MN &= self.weight_MN > 0
        return available_MN

    @property
    def prompt_index(self) -> NDArray[np.int64]:
        """Number of each context's prompt, 0 to P - 1 in order of first appearance.

        Contexts are taken as distinct: call it on :meth:`merged` scores.
        """
        if self.prompt_N is None:
            return np.arange(self.num_contexts)
        numbers: dict[Hashable, int] = {}
        return np.array([numbers.setdefault(label, len(numbers)) for label in self.prompt_N], dtype=np.int64)

    def merged(self) -> CrossScores:
        """Return the same scores with duplicate contexts as one column (``contexts_N=None`` merges nothing).

        The merged column keeps the first score that takes part (NaN when any that takes part is NaN), the largest
        weight, and is excluded where any duplicate is. Prompts that share a context become one prompt: removing either
        of them alone would leave rows without their own context.
        """
        duplicates = self._duplicates()
        if len(duplicates) == self.num_contexts:
            return self
        groups = list(duplicates.values())
        first_N = [columns[0] for columns in groups]
        new_index_N = np.empty(self.num_contexts, dtype=np.int64)
        for index, columns in enumerate(groups):
            new_index_N[columns] = index
        return replace(
            self,
            logprob_MN=self._merge_scores(self.logprob_MN, groups),
            own_M=new_index_N[self.own_M],
            contexts_N=tuple(duplicates),
            prompt_N=None if self.prompt_N is None else _united_prompts(self.prompt_N, groups, first_N),
            excluded_MN=None if self.excluded_MN is None else _reduce_columns(np.logical_or, self.excluded_MN, groups),
            weight_MN=None if self.weight_MN is None else _reduce_columns(np.maximum, self.weight_MN, groups),
            closing_MN=None if self.closing_MN is None else self._merge_scores(self.closing_MN, groups),
        )

    def save(self, path: str | Path) -> None:
        """Write one ``.npz`` without pickled objects; the file appears when it is complete.

        Labels (contexts, prompts, row ids) must be strings, numbers, booleans, None, or tuples of them.

        Raises:
            InputError: A label of another type.
        """
        cross_scores_npz.write({field.name: getattr(self, field.name) for field in fields(self)}, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> CrossScores:
        """Read what :meth:`save` wrote.

        Raises:
            RecordError: Not such a file, or one of an unknown schema version.
            FileNotFoundError: No file there.
        """
        return cls(**cross_scores_npz.read(Path(path)))

    def _check_rows(self) -> None:
        N = self.num_contexts
        if bad := np.flatnonzero((self.own_M < 0) | (self.own_M >= N)).tolist():
            raise InputError(f"own_M[{bad[0]}] is {self.own_M[bad[0]]}: expected a column from 0 to {N - 1}.")
        if bad := np.flatnonzero(self.num_tokens_M < 1).tolist():
            raise InputError(
                f"num_tokens_M[{bad[0]}] is {self.num_tokens_M[bad[0]]}: expected at least 1 token. "
                "Leave empty reasonings out and count them in the coverage."
            )
        own = (np.arange(self.num_rows), self.own_M)
        if self.weight_MN is not None:
            if not (np.isfinite(self.weight_MN).all() and (self.weight_MN >= 0).all()):
                raise InputError("weight_MN: expected finite numbers of at least 0 (0 = not scored).")
            if bad := np.flatnonzero(self.weight_MN[own] == 0).tolist():
                raise InputError(
                    f"row {bad[0]}: its own context has weight 0. Score every reasoning under its own context."
                )
        if self.excluded_MN is not None and (bad := np.flatnonzero(self.excluded_MN[own]).tolist()):
            raise InputError(
                f"row {bad[0]}: its own context (column {self.own_M[bad[0]]}) is excluded. "
                "A context that produced a reasoning cannot contain it; check own_M and excluded_MN."
            )

    def _check_duplicates(self) -> None:
        comparable_MN = self.available & ~np.isnan(self.logprob_MN)
        for label, columns in self._duplicates().items():
            for other in columns[1:]:
                both_M = comparable_MN[:, columns[0]] & comparable_MN[:, other]
                left, right = self.logprob_MN[both_M, columns[0]], self.logprob_MN[both_M, other]
                unequal = left != right  # equal infinities have no difference
                gap = float(np.max(np.abs(left[unequal] - right[unequal]), initial=0.0))
                if gap > MERGE_TOLERANCE:
                    raise InputError(
                        f"columns {columns[0]} and {other} are the same context ({str(label)[:60]}) but their scores "
                        f"differ by up to {gap:.3g}: expected at most {MERGE_TOLERANCE:g} nats. Score every distinct "
                        "context once, give contexts that differ different labels, or pass contexts_N=None."
                    )
            if self.excluded_MN is not None and len(columns) > 1:
                excluded_M = np.isin(self.own_M, columns) & self.excluded_MN[:, columns].any(axis=1)
                if bad := np.flatnonzero(excluded_M).tolist():
                    raise InputError(
                        f"row {bad[0]}: a duplicate of its own context is excluded (columns {columns} are the same "
                        "context): expected equal contexts to be excluded alike. Check excluded_MN and contexts_N."
                    )

    def _duplicates(self) -> dict[Hashable, list[int]]:
        """Columns of each distinct context, in order of first appearance."""
        groups: dict[Hashable, list[int]] = {}
        for column, label in enumerate(range(self.num_contexts) if self.contexts_N is None else self.contexts_N):
            groups.setdefault(label, []).append(column)
        return groups

    def _merge_scores(self, score_MN: Floats, groups: Sequence[list[int]]) -> Floats:
        merged_MN = score_MN[:, [columns[0] for columns in groups]]
        available_MN = self.available
        for index, columns in enumerate(groups):
            if len(columns) > 1:
                pick_M = np.argmax(available_MN[:, columns], axis=1)
                merged_MN[:, index] = score_MN[np.arange(self.num_rows), np.asarray(columns)[pick_M]]
                merged_MN[(available_MN & np.isnan(score_MN))[:, columns].any(axis=1), index] = np.nan
        return merged_MN


def _array(name: str, value: Any, dtype: type[np.generic], shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return a read-only copy of the wanted type; refuse a silent loss of digits and a wrong shape."""
    try:
        given = np.asarray(value)
        with np.errstate(invalid="ignore"):  # a NaN among integers is refused below
            array = np.array(given, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name}: {error}; expected an array of numbers, {shape or 'rows by contexts'}.") from error
    if dtype is not np.float64 and given.size and not np.array_equal(array, given):
        raise InputError(f"{name}: got {given.dtype} values that are not {dtype.__name__}; expected {dtype.__name__}.")
    if shape is not None and array.shape != shape:
        if array.size == 0 and 0 in shape:
            array = array.reshape(shape)
        else:
            raise InputError(f"{name} has shape {array.shape}: expected {shape}, as logprob_MN says.")
    array.setflags(write=False)
    return array


def _labels(name: str, labels: Sequence[Hashable], length: int) -> tuple[Hashable, ...]:
    labels = tuple(labels)
    if len(labels) != length:
        raise InputError(f"{name} has {len(labels)} entries: expected {length}, as logprob_MN says.")
    for label in labels:
        try:
            hash(label)
        except TypeError as error:
            raise InputError(
                f"{name}: got a {type(label).__name__}, expected hashables. Give token ids as a tuple."
            ) from error
    return labels


def _reduce_columns(ufunc: np.ufunc, value_MN: NDArray[Any], groups: Sequence[list[int]]) -> NDArray[Any]:
    return np.stack([ufunc.reduce(value_MN[:, columns], axis=1) for columns in groups], axis=1)


def _united_prompts(
    prompt_N: Sequence[Hashable], groups: Sequence[list[int]], first_N: Sequence[int]
) -> tuple[Hashable, ...]:
    """Label of each merged context; prompts that share a context take the label of the first."""
    labels = list(prompt_N)
    for columns in groups:
        shared = {labels[column] for column in columns}
        labels = [labels[columns[0]] if label in shared else label for label in labels]
    return tuple(labels[column] for column in first_N)
