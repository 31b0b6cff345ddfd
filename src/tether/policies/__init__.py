"""Causal language models as policies: load, generate with a kept cache, log-probabilities, the tiny model."""

from tether.policies.causal import CausalPolicy, token_logprobs
from tether.policies.generate import GenerationSession, Reply
from tether.policies.load import load_policy
from tether.policies.tiny import build_tiny

__all__ = ["CausalPolicy", "GenerationSession", "Reply", "build_tiny", "load_policy", "token_logprobs"]
