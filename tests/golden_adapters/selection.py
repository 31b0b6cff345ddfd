"""Selection and reward statistics: filter, reward_variance."""

import numpy as np

from golden_adapters.registry import Case, Result, topic
from tether.objectives import group_reward_statistics
from tether.selection import select_by_score, select_groups


def as_rows(rewards_by_group):
    """Return flat rewards and one group number a row."""
    sizes = [len(rewards) for rewards in rewards_by_group]
    return np.array(sum(rewards_by_group, []), dtype=float), np.repeat(np.arange(len(sizes)), sizes)


@topic("filter")
def filter_groups(case: Case) -> Result:
    inputs, options = case["inputs"], case["options"]
    if "rewards" in inputs:
        ranked = select_groups(*as_rows(inputs["rewards"]), **options).groups
    else:
        ranked = select_by_score([float(score) for score in inputs["scores"]], **options).tolist()
    return {"kept": sorted(ranked), "rank_order": ranked}


@topic("reward_variance")
def reward_variance(case: Case) -> Result:
    options = case["options"]
    if options.get("kind") == "heterogeneity":  # the spread of the variances themselves, seen as one group
        found = group_reward_statistics(*as_rows([case["inputs"]["rv"]]), ddof=options["ddof"])
        mean, std = float(found.mean_P[0]), float(found.std_P[0])
        return {"mean": mean, "std": std, "ratio": std / mean}
    rows = as_rows(case["inputs"]["rewards"])
    found = group_reward_statistics(*rows, ddof=options["ddof"], zero_rtol=options["zero_rtol"])
    return {
        "variance": found.variance_P.tolist(),
        "std": found.std_P.tolist(),
        "zero": found.constant_P.tolist(),
    }
