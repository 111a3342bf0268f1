"""Whether the server may be sent traffic. A pure machine with one way forward."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

State = Literal["warming", "ready", "failed", "draining"]


def warm_up_sizes(max_items: int) -> tuple[int, ...]:
    """The batch sizes to run before traffic: powers of two and the largest, smallest first."""
    sizes = {1, max_items}
    size = 2
    while size < max_items:
        sizes.add(size)
        size *= 2
    return tuple(sorted(sizes))


@dataclass(frozen=True, slots=True)
class Readiness:
    """`state` and, for people, why."""

    state: State
    left: tuple[int, ...] = ()
    """Batch sizes not yet run."""
    reason: str = ""

    @classmethod
    def start(cls, sizes: tuple[int, ...]) -> Readiness:
        """Warming until each of `sizes` has been run."""
        return cls("warming", sizes, f"warming up batch sizes {', '.join(map(str, sizes))}")

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    def ran(self, size: int) -> Readiness:
        """A real batch of `size` went through the model."""
        if self.state != "warming":
            return self
        left = tuple(other for other in self.left if other != size)
        if left:
            return replace(self, left=left, reason=f"warming up batch sizes {', '.join(map(str, left))}")
        return Readiness("ready")

    def broke(self, reason: str) -> Readiness:
        """A failed warm-up is final: a server whose model does not run never becomes ready."""
        return (
            Readiness("failed", self.left, f"warm-up failed: {reason}") if self.state == "warming" else self
        )

    def drain(self) -> Readiness:
        """No new requests; those inside end."""
        return Readiness("draining", (), "draining: the server is shutting down")
