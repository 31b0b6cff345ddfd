"""The two ways this package meets arrays.

Formulas over tokens run in the namespace of their input (:func:`array_api_compat.array_namespace`), so gradients flow
and the result is of the input's kind. Rewards are one number a rollout and carry no gradient: arithmetic over groups
runs on the host in float64 and goes back to the kind, device and dtype that it came from.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device, is_array_api_obj, is_torch_array

from tether.errors import InputError

Array: TypeAlias = Any  # a NumPy array or a Torch tensor
Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Booleans: TypeAlias = npt.NDArray[np.bool_]


def vector(values: Array, name: str) -> Floats:
    """Return a sequence, NumPy array or Torch tensor of one number a row as float64 on the host.

    Raises:
        InputError: If ``values`` is not one real number a row.
    """
    if is_torch_array(values):
        values = values.detach().cpu().double().numpy()
    try:
        result = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {error}; expected one real number a row.") from error
    if result.ndim != 1:
        raise InputError(f"{name} has shape {result.shape}; expected one number a row: flatten it, with an id per row.")
    return result


def of_kind(values: Floats, reference: Array) -> Array:
    """Return host values as an array of the reference's kind, device and (when floating) dtype."""
    if not is_array_api_obj(reference):
        return values
    xp = array_namespace(reference)
    floating = xp.isdtype(reference.dtype, "real floating")
    dtype = reference.dtype if floating else xp.__array_namespace_info__().default_dtypes()["real floating"]
    return xp.asarray(values, dtype=dtype, device=device(reference))


def constant(values: Array) -> Array:
    """Return an array through which no gradient flows: advantages, returns and rewards are targets, not functions."""
    return values.detach() if is_torch_array(values) else values


def working_dtype(*arrays: Array) -> Any:
    """Return the dtype to compute in: the widest real floating one of the arrays, at least float32."""
    xp = array_namespace(*arrays)
    floating = [values.dtype for values in arrays if xp.isdtype(values.dtype, "real floating")]
    default = xp.__array_namespace_info__().default_dtypes()["real floating"]
    return xp.result_type(*floating, xp.float32) if floating else default
