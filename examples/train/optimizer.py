"""Adam with clipping of the gradient's norm."""

from __future__ import annotations

import jax
import jax.numpy as jnp

BETA1, BETA2, EPSILON = 0.9, 0.98, 1e-8


@jax.jit
def _update(params, gradient, moments, learning_rate, max_norm, step):
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradient.values()))
    clip = jnp.minimum(1.0, max_norm / (norm + 1e-9))
    updated, kept = {}, {}
    for name, value in params.items():
        g = gradient[name] * clip
        first = BETA1 * moments[name][0] + (1 - BETA1) * g
        second = BETA2 * moments[name][1] + (1 - BETA2) * g * g
        rise = first / (1 - BETA1**step)
        updated[name] = value - learning_rate * rise / (jnp.sqrt(second / (1 - BETA2**step)) + EPSILON)
        kept[name] = (first, second)
    return updated, kept, norm


class Adam:
    def __init__(self, learning_rate: float, max_norm: float = 1.0) -> None:
        self._learning_rate, self._max_norm = learning_rate, max_norm
        self._moments = None
        self._step = 0

    def __call__(self, params: dict[str, jax.Array], gradient: dict[str, jax.Array], scale: float = 1.0):
        """The parameters after a step down the gradient, and the gradient's norm."""
        self._moments = self._moments or {name: (jnp.zeros_like(p), jnp.zeros_like(p)) for name, p in params.items()}
        self._step += 1
        params, self._moments, norm = _update(
            params, gradient, self._moments, self._learning_rate * scale, self._max_norm, float(self._step)
        )
        return params, float(norm)
