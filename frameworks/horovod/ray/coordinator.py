"""For programs that start actors themselves and make them ranks: who they are, and where they meet."""

import os
from typing import Any

from horovod.bootstrap.secret import SECRET_VARIABLE
from horovod.bootstrap.start_settings import START_TIMEOUT_VARIABLE, STORE_VARIABLE

from .listener import Listener
from .meeting import Meeting, new_meeting
from .settings import start_seconds


class Coordinator:
    """Tells ranks their places and where they meet, in variables for their environments.

    Args:
        settings: see ``RayExecutor``.
    """

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.rendezvous: Meeting | None = None
        self._hostnames: dict[str, str] = {}
        self._ranks: dict[str, list[int]] = {}  # by node

    @property
    def hostnames(self) -> list[str]:
        """One for each node that has ranks: two may be on one machine."""
        return list(self._hostnames.values())

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return sum(map(len, self._ranks.values()))

    @property
    def node_id_string(self) -> str:
        """The nodes with the numbers of their ranks, as for ``horovodrun -H``."""
        return ",".join(f"{node}:{len(ranks)}" for node, ranks in self._ranks.items())

    def register(self, hostname: str, node_id: str, world_rank: int) -> None:
        """A rank is on this node."""
        self._hostnames[node_id] = hostname
        self._ranks.setdefault(node_id, []).append(world_rank)

    def finalize_registration(self) -> dict[int, dict[str, int]]:
        """When all are known: by rank, the variables that say its place among those of its node, and that of
        its node.
        """
        found = {}
        for node, ranks in self._ranks.items():
            for local, rank in enumerate(ranks):
                alike = [other for other, those in self._ranks.items() if len(those) > local]
                found[rank] = {
                    "HOROVOD_LOCAL_RANK": local,
                    "HOROVOD_LOCAL_SIZE": len(ranks),
                    "HOROVOD_CROSS_RANK": alike.index(node),
                    "HOROVOD_CROSS_SIZE": len(alike),
                }
        return found

    def establish_rendezvous(self) -> dict[str, str]:
        """Variables for all ranks. One is the secret of the job, which ``hvd.init()`` takes out again: hand
        them over in a message, not in a ``runtime_env``.
        """
        self.rendezvous = new_meeting(self.world_size, os.environ)
        Listener(self.rendezvous)
        address, secret = self.rendezvous.terms()
        return {
            STORE_VARIABLE: address,
            SECRET_VARIABLE: secret.hex(),
            START_TIMEOUT_VARIABLE: f"{start_seconds(self.settings):g}",
        }
