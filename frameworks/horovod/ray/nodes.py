"""The nodes of a Ray cluster: what they are called in a job, and how many ranks each may run."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import ray


def alive() -> dict[str, Any]:
    """What Ray knows of each node that it does not count as lost, and is not about to lose, by its id."""
    found = {node["NodeID"]: node for node in ray.nodes() if node.get("Alive", node.get("alive"))}
    return {node: found[node] for node in found.keys() - set(draining())}


def draining() -> Collection[str]:
    """The ids of the nodes that Ray is about to take away; none where this version of it does not say it."""
    try:
        from ray._private.state import state

        return list(state.get_draining_nodes())
    except (ImportError, AttributeError):
        return ()


def names_of(hostnames: Mapping[str, str]) -> dict[str, str]:
    """What each node is called in a job, by its id: several may be on one machine."""
    alike = Counter(hostnames.values())
    return {node: name if alike[name] == 1 else f"{name}-{node[:8]}" for node, name in hostnames.items()}


class RayHostDiscovery:
    """Asks Ray for the nodes of an elastic job.

    Args:
        use_gpu: whether ranks take GPUs, too.
        cpus_per_slot: how many CPUs each rank takes.
        gpus_per_slot: how many GPUs.
    """

    def __init__(self, use_gpu: bool = False, cpus_per_slot: int = 1, gpus_per_slot: int = 1) -> None:
        self.cpus_per_slot = cpus_per_slot
        self.gpus_per_slot = (gpus_per_slot or 1) if use_gpu else 0

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """How many ranks each node has room for when nothing else runs there, by its address."""
        slots: Counter[str] = Counter()
        for node in alive().values():
            slots[node["NodeManagerAddress"]] += self.slots(node["Resources"])
        return {address: count for address, count in slots.items() if count}

    def slots(self, resources: Mapping[str, float]) -> int:
        """For how many ranks there is room."""
        wanted = {"CPU": self.cpus_per_slot, "GPU": self.gpus_per_slot}
        return min(int(resources.get(name, 0) // each) for name, each in wanted.items() if each)
