"""Update rules: how a gradient becomes a step. Every rule treats each parameter by itself.

A rule holds its constants only. What it remembers of past gradients belongs to the learners, as flat arrays beside
their parameters: ``first`` follows the gradients, ``second`` their squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

LARGEST_RATE = 1e6  # beyond it a single step could leave the range of float32


class _Rule:
    """What the rules have in common: constants that are checked, and how the kernels take them."""

    rate: float
    code: ClassVar[int]  # by which the kernels know the rule
    has_first: ClassVar[bool]
    has_second: ClassVar[bool]

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            is_sound, expected = CHECKS[name]
            if not is_sound(value):
                raise ValueError(f"{name} is {value!r}, expected a number {expected}. If unsure, leave it out.")

    @property
    def numbers(self) -> tuple[float, float, float]:
        """What the kernels want beside the rate: how much the two memories keep, and what keeps from dividing by 0."""
        own = vars(self)
        return own.get("momentum", own.get("beta1", 0.0)), own.get("beta2", 0.0), own.get("eps", 0.0)


CHECKS: dict[str, tuple[Callable[[float], bool], str]] = {
    "rate": (lambda value: 0 < value <= LARGEST_RATE, f"above 0 and at most {LARGEST_RATE:g}"),
    "eps": (lambda value: value > 0, "above 0"),
    **dict.fromkeys(("momentum", "beta1", "beta2"), (lambda value: 0 <= value < 1, "in [0, 1)")),
}


@dataclass(frozen=True)
class SGD(_Rule):
    """Step by ``rate`` times the gradient: p ← p − rate g.

    Parameters
    ----------
    rate : float
    """

    rate: float = 0.05
    code, has_first, has_second = 0, False, False


@dataclass(frozen=True)
class Momentum(_Rule):
    """Step by a discounted sum of gradients: v ← momentum v + g, p ← p − rate v.

    Parameters
    ----------
    rate : float
    momentum : float
        How much of the past is kept, in [0, 1).
    """

    rate: float = 0.01
    momentum: float = 0.9
    code, has_first, has_second = 1, True, False


@dataclass(frozen=True)
class AdaGrad(_Rule):
    """Divide by the root of all squares so far: s ← s + g², p ← p − rate g / (√s + eps).

    Parameters
    ----------
    rate : float
    eps : float

    References
    ----------
    Duchi, Hazan and Singer, Adaptive Subgradient Methods for Online Learning and Stochastic Optimization, 2011.
    """

    rate: float = 0.1
    eps: float = 1e-8
    code, has_first, has_second = 2, False, True


@dataclass(frozen=True)
class Adam(_Rule):
    """Divide a running mean of gradients by the root of a running mean of their squares, both freed of their start.

    Parameters
    ----------
    rate : float
    beta1, beta2 : float
        How much of the past the two means keep, in [0, 1).
    eps : float

    References
    ----------
    Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015, Algorithm 1.

    Examples
    --------
    >>> Adam(rate=0.01)
    Adam(rate=0.01, beta1=0.9, beta2=0.999, eps=1e-08)
    """

    rate: float = 3e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    code, has_first, has_second = 3, True, True


UpdateRule: TypeAlias = SGD | Momentum | AdaGrad | Adam
BY_NAME: dict[str, type[UpdateRule]] = {"adam": Adam, "sgd": SGD, "momentum": Momentum, "adagrad": AdaGrad}


def update_rule(update: str | UpdateRule, rate: float | None) -> UpdateRule:
    """The rule meant by a name and a rate, or by a rule as it stands.

    Examples
    --------
    >>> update_rule("sgd", 0.5)
    SGD(rate=0.5)
    """
    if isinstance(update, UpdateRule):
        if rate is not None:
            told = f"rate is {rate!r} beside update={update!r}, which has a rate of its own."
            raise ValueError(f"{told} Give the rate to the rule.")
        return update
    if not isinstance(update, str) or update not in BY_NAME:
        raise ValueError(f"update is {update!r}, expected one of {sorted(BY_NAME)} or a rule such as Adam(rate=0.01).")
    rule = BY_NAME[update]
    return rule() if rate is None else rule(rate=rate)
