"""Which process acts as which rank: the first one that says so, for as long as it has a link. Pure."""

from dataclasses import dataclass


@dataclass
class _Holder:
    token: bytes
    process: str
    links: int = 0


class Claims:
    """Of one job. A process is known by a random token: its number is one of its own host."""

    def __init__(self) -> None:
        self._holders: dict[int, _Holder] = {}

    def take(self, rank: int, token: bytes, process: str) -> str:
        """Another link of a process that acts as ``rank``; ``process`` is its name.

        Returns:
            Why it may not; empty when it may. Then ``release`` is to be called when the link ends.
        """
        holder = self._holders.setdefault(rank, _Holder(token, process))
        if holder.token == token:
            holder.links += 1
            return ""
        return (
            f"rank {rank} is claimed twice: {holder.process} has started as rank {rank}, and {process} does "
            "so too. Only one process of a rank may call hvd.init(): does one start another, which inherits "
            "the variables that say who it is, or do two hosts have the same ones?"
        )

    def release(self, rank: int) -> None:
        """A link has ended. After the last one another process may act as ``rank``."""
        holder = self._holders[rank]
        holder.links -= 1
        if holder.links == 0:
            del self._holders[rank]
