"""The backends of a gateway: whether they are paused, and the version of their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

PauseMode: TypeAlias = Literal["finish", "abort", "continue"]
BackendState: TypeAlias = Literal["serving", "pausing", "paused", "resuming", "unreachable"]


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend of a gateway. `fields` is what the gateway said of it."""

    id: str
    url: str
    models: tuple[str, ...]
    state: BackendState
    #: Of its weights; None if it is not known.
    version: str | None
    #: Requests of the gateway on their way to it.
    in_flight: int
    #: Of the pause that it is in, and the seconds after which it resumes if nobody ends that pause.
    epoch: int | None
    lease: float | None
    #: Why the last order failed.
    error: str | None
    fields: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Backend:
        lease = fields.get("leaseMs")
        return cls(
            id=fields["id"],
            url=fields["url"],
            models=tuple(fields["models"]),
            state=fields["state"],
            version=fields["version"],
            in_flight=fields["inFlight"],
            epoch=fields.get("epoch"),
            lease=None if lease is None else lease / 1000,
            error=fields.get("error"),
            fields=fields,
        )


@dataclass(frozen=True, slots=True)
class BackendAnswer:
    """What one backend did with an order: to pause, to resume, or to take a version."""

    backend: str
    ok: bool
    state: BackendState
    version: str | None
    #: Of a pause: what happened to replies in the making, and why that differs from what was asked for.
    mode: PauseMode | None
    note: str | None
    error: str | None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> BackendAnswer:
        return cls(
            backend=fields["backend"],
            ok=fields["ok"],
            state=fields["status"],
            version=fields.get("version"),
            mode=fields.get("mode"),
            note=fields.get("note"),
            error=fields.get("error"),
        )


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause that has begun."""

    #: Its number: a resume with it ends no later pause.
    epoch: int
    backends: tuple[BackendAnswer, ...]
