"""Evaluation: success rates and pass@k."""

import numpy as np

from golden_adapters.registry import Case, Result, topic
from tether.diagnostics import binomial_standard_error, pass_at_k, pass_at_k_over_prompts


@topic("eval_stats")
def eval_stats(case: Case) -> Result:
    inputs = case["inputs"]
    if case["options"]["kind"] == "binomial_se":
        return {"se": binomial_standard_error(inputs["p"], inputs["n"])}
    return {"value": pass_at_k(inputs["n"], inputs["c"], inputs["k"])}


@topic("eval.pass_at_k")
def several_pass_at_k(case: Case) -> Result:
    return {"value": [pass_at_k(*counts) for counts in case["inputs"]["n_c_k"]]}


@topic("eval.pass_avg_gap")
def pass_avg_gap(case: Case) -> Result:
    correct_PG = np.array(case["inputs"]["correct"], dtype=bool)
    prompts = np.repeat(np.arange(len(correct_PG)), correct_PG.shape[1]).tolist()
    found = {k: pass_at_k_over_prompts(correct_PG.ravel(), prompts, k=k).value for k in (1, case["options"]["k"])}
    best = found[case["options"]["k"]]
    return {"avg": found[1], "pass_at_k": best, "gap": best - found[1]}
