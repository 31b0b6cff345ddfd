"""The configuration of a run: one Pydantic model a concern, defaults in one place.

An unknown key is an error that names the nearest right one. Every field says its unit and where its default comes
from. A configuration is read from YAML and from ``a.b=value`` words; :func:`load_config` does both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tether.errors import ConfigError, did_you_mean

Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"]
LossScale = Literal["kept_mean", "rho_scaled", "full_batch"]
SelectControl = Literal["none", "random_drop", "dose"]


class Section(BaseModel):
    """Base of all sections: frozen, closed against unknown keys, numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class EnvConfig(Section):
    """Which environment, with which options; a bare name is enough: ``env=frozen_lake``."""

    name: str = Field("frozen_lake", description="registered name, or module:Class")
    options: dict[str, Any] = Field(default_factory=dict, description="constructor options; env.KEY=value sets one")
    prompt_style: Literal["auto", "full", "compact"] = Field(
        "auto", description="how a turn is worded; auto: compact for the tiny model, full otherwise"
    )
    format_penalty: float = Field(
        0.1,
        ge=0,
        description="taken off the reward per turn without a valid answer (RAGEN-2, B.2); never filtered on",
    )

    @model_validator(mode="before")
    @classmethod
    def _collect_options(cls, given: Any) -> Any:
        """Take a bare name, and move keys that are not ours to the environment's options (checked when it is made)."""
        if isinstance(given, str):
            return {"name": given}
        if not isinstance(given, Mapping):
            return given
        if not isinstance(given.get("options") or {}, Mapping):
            return given
        options = dict(given.get("options") or {})
        options.update({key: value for key, value in given.items() if key not in cls.model_fields})
        return {**{key: value for key, value in given.items() if key in cls.model_fields}, "options": options}


class SelectConfig(Section):
    """Which groups of an iteration train (RAGEN-2, 3.3), on the variance of the outcome reward."""

    strategy: Literal["none", "top_p", "top_k", "top_k_abs", "min_p"] = Field(
        "top_p", description="none: every group trains"
    )
    top_p: float = Field(0.9, gt=0, le=1, description="share of the summed variance to keep")
    fraction: float = Field(0.25, gt=0, le=1, description="top_k: share of the groups to keep")
    count: int = Field(2, ge=1, description="top_k_abs: number of groups to keep")
    min_p: float = Field(0.05, gt=0, le=1, description="min_p: keep variances of at least this share of the largest")
    statistic: Literal["variance", "std"] = Field("variance", description="sample statistic, ddof 1")
    include_zero: bool = Field(False, description="whether constant groups may be kept")
    keep: Literal["largest", "smallest"] = Field("largest", description="end of the ranking that trains")
    min_keep: int = Field(0, ge=0, description="groups to keep at least, as far as there are candidates")
    mass: Literal["linear", "softmax"] = Field(
        "linear", description="top_p: what it sums; softmax depends on the unit of the reward (RAGEN's main table)"
    )
    selection_eps: float = Field(
        0.0, ge=0, description="top_p: amount by which its target is lowered, in units of the statistic (RAGEN: 0.01)"
    )
    profile: Literal["tether", "compat"] = Field("tether", description="compat: zero cut and refusals of RAGEN's code")
    loss_scale: LossScale = Field("kept_mean", description="how the loss is normalised after filtering")
    control: SelectControl = Field(
        "none",
        description="experiment controls: random_drop keeps as many groups as the rule would, at random; dose keeps "
        "all groups and multiplies the regularisers by the share that the rule would have kept",
    )


class LossConfig(Section):
    """The objective: clipped surrogate, KL and entropy terms, aggregation."""

    clip_low: float = Field(0.2, gt=0, lt=1, description="lower clip of the ratio (PPO)")
    clip_high: float = Field(0.28, gt=0, description="upper clip of the ratio (clip-higher, DAPO)")
    dual_clip: float | None = Field(None, gt=1, description="bound of the loss for negative advantages; RAGEN uses 3")
    std_norm: bool = Field(True, description="divide group advantages by the group's standard deviation (GRPO)")
    kl_coef: float = Field(0.0, ge=0, description="weight of the KL loss towards the reference")
    kl_kind: Literal["k2", "k3"] = Field("k2", description="estimator whose gradient is used; k1 has none on policy")
    entropy_coef: float = Field(0.001, ge=0, description="weight of the token entropy bonus (RAGEN-2, B.2)")
    aggregation: Aggregation = Field(
        "token_mean", description="mean over all kept tokens, or by training sequence (an episode may be several)"
    )


class OptimConfig(Section):
    """AdamW and how a batch is cut into updates."""

    lr: float = Field(5e-4, gt=0, description="learning rate")
    betas: tuple[float, float] = Field((0.9, 0.99), description="decay of the moments of the gradient (Adam)")
    weight_decay: float = Field(0.0, ge=0, description="decoupled, as a share of lr an update (AdamW)")
    warmup_steps: int = Field(0, ge=0, description="updates over which the rate rises linearly")
    max_grad_norm: float = Field(1.0, gt=0, description="norm to which the gradient of an update is clipped")
    minibatches: int = Field(2, ge=1, description="updates an iteration, at most")
    min_minibatch: int = Field(8, ge=1, description="samples an update, at least: updates follow the kept count")
    micro_batch: int = Field(64, ge=1, description="sequences a forward pass; changes memory, never the result")


class GenerateConfig(Section):
    """How replies are sampled."""

    max_reply_tokens: int = Field(48, ge=2, description="tokens a reply, at most")
    temperature: float = Field(1.0, gt=0, description="1 keeps scorer and sampler equal")


class EvalConfig(Section):
    """Validation on fixed unseen states; it never changes training's random numbers."""

    every: int = Field(20, ge=0, description="iterations between evaluations; 0: only before and after training")
    prompts: int = Field(64, ge=1, description="unseen states")
    samples: int = Field(4, ge=1, description="episodes a state")
    temperature: float = Field(1.0, ge=0, description="sampling temperature; 0 is greedy")


class MonitorConfig(Section):
    """Cross-scoring inside the run."""

    every: int = Field(5, ge=0, description="iterations between measurements, 0 switches the monitor off (RAGEN-2: 5)")
    max_contexts: int = Field(32, ge=2, description="distinct contexts scored a measurement of training rollouts")
    max_reasonings: int = Field(64, ge=2, description="reasoning spans scored a measurement of training rollouts")
    on_eval: bool = Field(True, description="measure the evaluation rollouts as well")
    eval_contexts: int = Field(64, ge=2, description="distinct contexts scored a measurement of evaluation rollouts")
    eval_reasonings: int = Field(64, ge=2, description="reasoning spans scored a measurement of evaluation rollouts")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="of every interval that is logged")


class CheckpointConfig(Section):
    """When weights and state are saved."""

    every: int = Field(20, ge=0, description="iterations between checkpoints; 0: only the last one")
    keep: int = Field(2, ge=1, description="newest checkpoints that stay")
    rollouts_every: int = Field(10, ge=0, description="iterations between rollout files; 0: never")


class RunConfig(Section):
    """Everything a training run is made of."""

    name: str | None = Field(None, description="run folder; None takes a fresh number")
    runs_dir: Path = Field(Path("runs"), description="folder of the run folders")
    seed: int = Field(0, ge=0, description="root of all randomness of the run")
    steps: int = Field(40, ge=0, description="training iterations")
    model: str = Field("tiny", description="a model folder, or tiny: trained on the spot from synthetic traces")
    reference: str = Field("start", description="KL reference: the starting weights, or a model folder")
    env: EnvConfig = Field(default_factory=EnvConfig)
    recipe: Literal["grpo"] = Field("grpo", description="named objective")
    prompts: int = Field(24, ge=1, description="groups (initial states) an iteration")
    group_size: int = Field(8, ge=1, description="episodes a group")
    select: SelectConfig = Field(default_factory=SelectConfig)
    loss: LossConfig = Field(default_factory=LossConfig)
    optim: OptimConfig = Field(default_factory=OptimConfig)
    generate: GenerateConfig = Field(default_factory=GenerateConfig)
    eval: EvalConfig = Field(default_factory=EvalConfig)
    monitor: MonitorConfig = Field(default_factory=MonitorConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    resume: bool = Field(False, description="continue the named run from its newest checkpoint")

    @field_validator("model", "reference")
    @classmethod
    def _not_empty(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("an empty name; give a model folder or 'tiny'")
        return value

    @model_validator(mode="after")
    def _possible(self) -> RunConfig:
        uses_variance = self.select.strategy != "none" or self.select.control != "none"
        if self.group_size < 2 and (uses_variance or self.recipe == "grpo"):
            raise ValueError(
                f"group_size={self.group_size} with recipe={self.recipe}, select.strategy={self.select.strategy}: the "
                "reward variance and the advantage of a group need at least 2 members; set group_size=2 or more"
            )
        if self.select.control != "none" and self.select.strategy == "none":
            raise ValueError(
                f"select.control={self.select.control} copies the share that a rule keeps, but select.strategy=none; "
                "set select.strategy=top_p"
            )
        if self.select.loss_scale == "rho_scaled" and self.select.strategy in ("none", "top_k_abs"):
            raise ValueError(
                f"select.loss_scale=rho_scaled with select.strategy={self.select.strategy}: this rule has no keeping "
                "rate to scale by; set select.loss_scale=kept_mean or full_batch"
            )
        if self.resume and self.name is None:
            raise ValueError("resume=true without a name; set name=RUN to say which run continues")
        return self


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML file (optional) and ``a.b=value`` words into a :class:`RunConfig`.

    The file may be the ``config.yaml`` of a run: the versions of what ran there are left out.

    Raises:
        ConfigError: for a file that cannot be read, a malformed word, an unknown key or a bad value; the message names
            the field and the fix.
    """
    try:
        tree = OmegaConf.create(_read_yaml(path) if path else {})
        for word in overrides:
            key, equals, _ = word.partition("=")
            if not equals or not key.strip():
                raise ConfigError(f"cannot read {word!r}: key=value is expected, for example steps=40 or optim.lr=1e-3")
            tree = _merge_word(tree, word)
        plain = OmegaConf.to_container(tree, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(
            f"{path or 'the configuration'}: {error.msg}; numbers, text, lists and mappings are expected, and a "
            "${reference} to another key; quote what is meant as text"
        ) from None
    return parse_config(plain)


def parse_config(tree: Any) -> RunConfig:
    """Validate a plain tree.

    Raises:
        ConfigError: with one line a problem.
    """
    if not isinstance(tree, Mapping):
        raise ConfigError(f"the configuration is a {type(tree).__name__}; a mapping of keys to values is expected")
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(dict(problem)) for problem in error.errors())) from None


def dump_config(config: RunConfig) -> str:
    """Return the resolved configuration as YAML."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _merge_word(tree: Any, word: str) -> Any:
    try:
        # env=NAME may replace a mapping (the options were those of another environment), and env.key=value may extend a
        # bare name.
        key, _, value = word.partition("=")
        if key == "env" and OmegaConf.is_config(tree.get("env")):
            tree.env = {
                kept: tree.env[kept] for kept in tree.env if kept in EnvConfig.model_fields and kept != "options"
            }
            word = f"env.name={value}"
        if key.startswith("env.") and isinstance(tree.get("env"), str):
            tree.env = {"name": tree.env}
        return OmegaConf.merge(tree, OmegaConf.from_dotlist([word]))
    except (OmegaConfBaseException, yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"cannot read {word!r}: {error}; key=value is expected, for example steps=40") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}; give a YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not readable YAML: {error}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} holds a {type(tree).__name__}; a mapping of keys to values is expected")
    return {key: value for key, value in tree.items() if key != "versions"}


def _explain(problem: dict[str, Any]) -> str:
    """One line for one Pydantic problem: the field, what was given, what is expected."""
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = _fields_at(problem["loc"][:-1])
        prefix = ".".join(str(part) for part in problem["loc"][:-1])
        hint = did_you_mean(str(problem["loc"][-1]), known)
        return f"unknown key {where!r}{hint}; keys of {prefix or 'the configuration'}: {', '.join(known)}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{where}={problem['input']!r}: {message}" if where else message


def _fields_at(path: tuple[Any, ...]) -> list[str]:
    model: Any = RunConfig
    for part in path:
        annotation = model.model_fields[part].annotation
        model = next((a for a in (annotation, *get_args(annotation)) if isinstance(a, type)), annotation)
    return list(model.model_fields)
