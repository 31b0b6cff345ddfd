"""Verdicts from matrices and rollouts: every finding on the data it is about, and not on its neighbour's."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from brute_force import channel, sample_channel

from tether.diagnostics import Thresholds, diagnose, find_in_run, input_dependence
from tether.diagnostics.dependence_findings import prompts_needed
from tether.errors import InputError
from tether.records import Episode, Rollouts, Turn
from tether.results import Estimate
from tether.scoring import CrossScores

NAN = math.nan


def dependent(seed=0, eps=0.3, num_contexts=16, per_context=4):
    return sample_channel(channel(32, eps), num_contexts, per_context, np.random.default_rng(seed))


def blind(logprob=-3.0, num_contexts=16, seed=0, **more):
    """Varied reasoning that no context explains better than another."""
    rng = np.random.default_rng(seed)
    score_M = logprob + rng.normal(scale=0.1 * abs(logprob), size=2 * num_contexts)
    logprob_MN = np.repeat(score_M[:, None], num_contexts, axis=1)
    own_M = np.repeat(np.arange(num_contexts), 2)
    given = {"behaviour_logprob_M": score_M} | more
    return CrossScores(logprob_MN, own_M, np.ones(len(own_M)), **given)


def found_in(**given):
    return {finding.id: finding for finding in diagnose(**given).findings}


def test_a_dependent_policy_has_no_findings():
    diagnosis = diagnose(scores={1: dependent(0), 5: dependent(1)})
    assert diagnosis.findings == ()
    assert diagnosis.severity is None
    assert sorted(diagnosis.history) == [1, 5]
    assert diagnosis.estimates["first_turn"] == diagnosis.history[5]["first_turn"]


def test_template_collapse_names_value_interval_bound_chance_and_start():
    (found,) = diagnose(scores={1: dependent(), 20: blind(), 30: blind(seed=1)}).findings
    assert (found.id, found.severity, found.since) == ("template_collapse", "critical", 20)
    assert "first_turn, step 30: mi_sequence 0 nats [0, 0] (bound 2.77, chance 0)" in found.evidence
    assert "at step 1 it was mi_sequence" in found.evidence
    assert "retrieval_accuracy 0.0625" in found.evidence


def test_a_recovery_ends_the_finding():
    assert found_in(scores={1: dependent(), 20: blind(), 30: dependent(1)}) == {}


def test_a_run_that_starts_blind_is_found_from_its_first_step():
    assert found_in(scores={1: blind(), 2: blind()})["template_collapse"].since == 1


def test_low_entropy_tells_the_two_collapses_apart():
    assert list(found_in(scores={1: dependent(), 9: blind(logprob=-0.05)})) == ["low_entropy_collapse"]
    assert list(found_in(scores={1: dependent(), 9: blind(logprob=-3.0)})) == ["template_collapse"]


def test_faithful_and_without_variety_is_compressed():
    found = found_in(scores={1: dependent(eps=0.5), 9: dependent(eps=0.01)})
    assert list(found) == ["compressed_reasoning"]
    assert found["compressed_reasoning"].since == 9
    assert "conditional_entropy" in found["compressed_reasoning"].evidence


def test_an_interval_that_is_too_wide_is_undetermined_and_says_how_many_prompts_would_do():
    found = found_in(scores=dependent(eps=0.8, num_contexts=4, per_context=2, seed=1))
    assert list(found) == ["undetermined"]
    assert found["undetermined"].severity == "info"
    assert "from 4 prompts" in found["undetermined"].evidence
    assert found["undetermined"].advice.startswith("Score about ")


def test_two_prompts_are_undetermined_and_not_collapsed():
    assert list(found_in(scores=blind(num_contexts=2))) == ["undetermined"]


@pytest.mark.parametrize(
    ("value", "half", "needed"),
    [(0.0, 0.4, 40), (0.2, 0.4, 40), (0.1, 0.4, 160), (0.15, 0.3, 40)],
)
def test_the_number_of_prompts_follows_the_square_of_the_gap(value, half, needed):
    """Bound 2, so the limit is 0.2: the verdict with the larger gap needs fewer prompts."""
    mi = Estimate("mi_sequence", value, "nats", value - half, value + half, num_prompts=10, bound=2.0, chance=0.0)
    assert prompts_needed(mi, Thresholds()) == pytest.approx(needed, abs=1)


def test_the_collapse_limit_is_configurable():
    scores = dependent(eps=0.9, num_contexts=16, per_context=2, seed=2)
    mi = input_dependence(scores)["mi_sequence"]
    assert mi.low < 0 < mi.high
    share = mi.high / mi.bound
    for limit, expected in ((share * 1.01, "template_collapse"), (share * 0.99, "undetermined")):
        assert list(found_in(scores=scores, thresholds=Thresholds(collapse_share=limit))) == [expected]


def test_unverified_scores_of_the_policy_lower_the_severity():
    found = found_in(scores=blind(behaviour_logprob_M=None))["template_collapse"]
    assert found.severity == "warning"
    assert "stored log-probabilities are missing" in found.evidence


@pytest.mark.parametrize("kind", ["fixed", "critic"])
def test_another_scorer_cannot_show_that_nothing_is_there(kind):
    found = found_in(scores=blind(kind=kind))
    assert list(found) == ["undetermined"]
    assert "lower bound near chance does not show" in found["undetermined"].evidence
    assert found_in(scores=CrossScores(np.eye(4) * 9, range(4), np.ones(4), kind=kind)) == {}


def test_a_scorer_that_disagrees_with_the_sampler_is_named():
    scores = dependent()
    wrong = CrossScores(
        scores.logprob_MN, scores.own_M, scores.num_tokens_M, behaviour_logprob_M=scores.behaviour_logprob_M - 0.5
    )
    found = found_in(scores={1: scores, 2: wrong})
    assert list(found) == ["scorer_mismatch"]
    assert found["scorer_mismatch"].since == 2
    assert "0.5 nats per token" in found["scorer_mismatch"].evidence
    assert sorted(found_in(scores=blind(behaviour_logprob_M=np.zeros(32)))) == ["scorer_mismatch", "undetermined"]


def test_a_failed_self_check_is_a_scorer_mismatch():
    logprob_MN = np.where(np.eye(8, dtype=bool), -30.0, -1.0)
    scores = CrossScores(logprob_MN, range(8), np.ones(8), behaviour_logprob_M=np.full(8, -30.0))
    assert "self-check failed" in found_in(scores=scores)["scorer_mismatch"].evidence


def test_scores_that_are_not_numbers_are_found_and_nothing_else_is_said():
    found = found_in(scores={1: dependent(), 2: CrossScores([[NAN, -1.0]], [0], [1])})
    assert list(found) == ["non_finite"]
    assert found["non_finite"].since == 2


def test_unreadable_output_is_not_called_a_template():
    found = found_in(scores={5: blind()}, metrics=[{"step": 5, "valid_format_share": 0.0}])
    assert list(found) == ["unreadable_output"]


def test_a_solved_batch_without_dependence_accuses_the_reward():
    line = {"step": 5, "solved_share": 1.0, "failed_share": 0.0, "zero_variance_share": 1.0}
    found = found_in(scores={5: blind()}, metrics=[line])
    assert sorted(found) == ["reward_without_reading", "saturated", "template_collapse"]


def test_scopes_are_judged_apart():
    findings = diagnose(scores={"first_turn": {1: dependent()}, "later_turns": {1: blind()}}).findings
    assert [finding.evidence.split(",")[0] for finding in findings] == ["later_turns"]


def test_the_spread_is_smoothed_over_steps_of_one_grade():
    steps = {1: dependent(0), 2: CrossScores(np.eye(3), range(3), np.ones(3)), 3: dependent(2)}
    history = diagnose(scores=steps).history
    spread = {step: history[step]["first_turn"]["marginal_spread"].value for step in steps}
    smoothed = {step: history[step]["first_turn"]["marginal_spread_ema"].value for step in steps}
    assert smoothed[2] == spread[2]
    assert smoothed[3] == pytest.approx(0.9 * spread[1] + 0.1 * spread[3])


def test_nothing_to_diagnose_is_refused():
    with pytest.raises(InputError, match="expected rollouts, scores or metrics"):
        diagnose()
    with pytest.raises(InputError, match="a metric line without 'step'"):
        diagnose(metrics=[{"loss": 1.0}])
    with pytest.raises(InputError, match="got a list, expected CrossScores"):
        diagnose(scores={1: [[0.0]]})


def test_the_verdict_is_json():
    diagnosis = diagnose(scores={1: dependent(), 2: blind(num_contexts=2)})
    told = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert told["schema_version"] == 1
    assert told["thresholds"]["collapse_share"] == 0.1


def test_the_limits_in_force_are_told():
    strict = Thresholds(collapse_share=0.01)
    assert diagnose(scores=blind(), thresholds=strict).thresholds == asdict(strict)


def episode(group, member, reward, *, prompt=(1, 2), step=4, action="Up", finish="stop", thought=3, **more):
    reply = tuple(range(thought + 2))
    turn = Turn(
        prompt_ids=prompt,
        sampled_ids=reply,
        finish=finish,
        reasoning=slice(0, thought) if thought else None,
        action=action,
    )
    given = {"success": None if reward is None else reward > 0} | more
    return Episode(f"{group}-{member}", group_id=group, step=step, turns=(turn,), reward=reward, **given)


def test_rollouts_are_described_step_by_step():
    episodes = [
        episode("a", 0, 1.0),
        episode("a", 1, 1.0, thought=5),
        episode("b", 0, 1.0, prompt=(3,), finish="length", action=None, thought=0),
        episode("b", 1, 0.0, prompt=(3,)),
        episode("c", 0, None, prompt=(4,), step=5),
    ]
    diagnosis = diagnose(Rollouts.from_episodes(episodes, notes=["one broken line"]))
    rewards = diagnosis.history[4]["rewards"]
    assert rewards["reward_mean"].value == 0.75
    assert rewards["zero_variance_share"].value == rewards["solved_share"].value == 0.5
    assert rewards["success"].value == 0.75
    assert diagnosis.history[5]["rewards"]["reward_mean"].status == "skipped"
    assert diagnosis.notes == ("one broken line",)
    assert diagnosis.coverage["episodes_without_reward"] == 1
    alone = diagnose(episodes[:4]).coverage
    assert (alone["turns"], alone["turns_with_reasoning"], alone["truncated_reply_share"]) == (4, 3, 0.25)
    assert (alone["valid_format_share"], alone["reasoning_tokens_p50"]) == (0.75, 3.0)


def test_group_statistics_use_the_outcome_before_penalties():
    penalised = episode("a", 1, 0.9, components={"outcome": (1.0, 1.0), "format": (-0.1, 1.0)})
    rewards = diagnose([episode("a", 0, 1.0), penalised]).estimates["rewards"]
    assert rewards["zero_variance_share"].value == 1.0


def test_groups_that_mix_prompts_void_the_group_statistics():
    diagnosis = diagnose([episode("a", 0, 1.0), episode("a", 1, 0.0, prompt=(9,)), episode("b", 0, 1.0)])
    (found,) = (finding for finding in diagnosis.findings if finding.id == "mixed_groups")
    assert (found.severity, found.since) == ("critical", 4)
    assert "'a'" in found.evidence
    assert diagnosis.estimates["rewards"]["zero_variance_share"].status == "void"
    assert diagnosis.estimates["rewards"]["success"].status == "ok"


def test_the_same_group_id_in_another_step_is_another_group():
    episodes = [episode("a", m, 1.0, prompt=(step,), step=step) for step in (1, 2) for m in range(2)]
    assert "mixed_groups" not in {finding.id for finding in diagnose(episodes).findings}


def test_rollouts_saved_after_selection_refuse_shares():
    diagnosis = diagnose([episode("a", m, float(m), filter_state="post") for m in range(2)])
    assert "selection_bias" in {finding.id for finding in diagnosis.findings}
    assert diagnosis.estimates["rewards"]["zero_variance_share"].status == "skipped"


def test_a_reward_that_is_not_a_number_is_found():
    diagnosis = diagnose([episode("a", 0, NAN), episode("a", 1, 1.0)])
    assert diagnosis.findings[0].id == "non_finite"
    assert diagnosis.estimates["rewards"]["reward_mean"].status == "void"
    assert "group 'a'" in diagnosis.estimates["rewards"]["reward_mean"].reason


def test_episodes_without_turns_or_groups_are_counted_and_not_judged():
    diagnosis = diagnose([Episode("x", reward=1.0), Episode("y")])
    assert diagnosis.findings == ()
    assert diagnosis.estimates["rewards"]["reward_mean"].reason == "no episode has a group id and a reward"
    assert diagnosis.coverage["episodes"] == 2
    assert diagnosis.coverage["valid_format_share"] is None


def test_metric_lines_win_over_what_rollouts_show():
    diagnosis = diagnose(
        [episode("a", m, 1.0) for m in range(2)], metrics=[{"step": 4, "solved_share": 0.0, "failed_share": None}]
    )
    assert {finding.id for finding in diagnosis.findings} == {"dead_signal"}


def test_estimates_alone_are_enough_for_findings():
    history = {3: {"eval/first_turn": input_dependence(blind())}}
    (found,) = find_in_run([], history)
    assert (found.id, found.since) == ("template_collapse", 3)
