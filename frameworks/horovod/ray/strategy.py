"""Where the actors of an executor are placed: by placement groups of Ray."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, get_current_placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from . import nodes

_ANY_BUNDLE = -1


def create_placement_group(
    resources_per_bundle: Mapping[str, float],
    num_bundles: int,
    pg_timeout: float,
    pg_strategy: str,
) -> PlacementGroup:
    """A group of equal bundles, once the cluster has room for it.

    Raises:
        TimeoutError: it has none within ``pg_timeout`` seconds.
    """
    bundles = [dict(resources_per_bundle) for _ in range(num_bundles)]
    group = ray.util.placement_group(bundles, strategy=pg_strategy)
    try:
        if group.wait(pg_timeout):
            return group
        apart = ", each on a node of its own" if pg_strategy == "STRICT_SPREAD" else ""
        raise TimeoutError(
            f"the cluster has had no room for this job within {pg_timeout:g} s: wanted are {num_bundles} "
            f"bundles of {dict(resources_per_bundle)} each ({pg_strategy}{apart}), and available are "
            f"{_shown(ray.available_resources())} of {_shown(ray.cluster_resources())}; nodes: "
            f"{len(nodes.alive())}. Ask for less, or add nodes "
            "(create_settings(placement_group_timeout_s=...) is how long to wait for them)"
        )
    except BaseException:  # an interrupt: the group would go on waiting, and then keep its room
        remove_placement_group(group)
        raise


@dataclass
class Strategy:
    """How many actors there are, and what each needs. ``per_host``: of a job with so many on each host; None:
    they go where there is room, on as few hosts as possible. In a placement group that the driver is in
    itself they take its bundles, unless ``inherits`` is false.
    """

    num_workers: int
    cpus_per_worker: float
    gpus_per_worker: float
    timeout: float
    per_host: int | None = None
    inherits: bool = True
    placement_group: PlacementGroup | None = None
    _created_placement_group: PlacementGroup | None = None  # which ends with the job

    def place(self) -> None:
        """Finds room. Raises TimeoutError where there is none."""
        self.placement_group = get_current_placement_group() if self.inherits else None
        if self.placement_group is None:
            per_bundle, strategy = (1, "PACK") if self.per_host is None else (self.per_host, "STRICT_SPREAD")
            bundle = {"CPU": self.cpus_per_worker * per_bundle, "GPU": self.gpus_per_worker * per_bundle}
            wanted = {name: amount for name, amount in bundle.items() if amount} or {"CPU": 0.001}
            count = math.ceil(self.num_workers / per_bundle)
            self._created_placement_group = create_placement_group(wanted, count, self.timeout, strategy)
            self.placement_group = self._created_placement_group

    def create(self, worker_class: type) -> list[Any]:
        """The actors."""
        return [self._options(ray.remote(worker_class), n).remote() for n in range(self.num_workers)]

    def wait_for(self, asked: Sequence[Any]) -> None:
        """Waits until all actors answer. Raises TimeoutError where an inherited group has no room for them
        within ``timeout`` seconds.
        """
        patience = None if self._created_placement_group else self.timeout  # a new one has room for all
        late = ray.wait(asked, num_returns=len(asked), timeout=patience, fetch_local=False)[1]
        if late:
            assert self.placement_group is not None
            raise TimeoutError(
                f"the placement group of this process has had no room for {len(late)} of {len(asked)} ranks "
                f"within {self.timeout:g} s: each takes {self._needs}, and its bundles are "
                f"{self.placement_group.bundle_specs}. Ask for less, or for room beside it "
                "(use_current_placement_group=False)"
            )

    @property
    def _needs(self) -> dict[str, float]:
        return {"num_cpus": self.cpus_per_worker, "num_gpus": self.gpus_per_worker}

    def _options(self, actor: Any, number: int) -> Any:
        bundle = _ANY_BUNDLE
        if self._created_placement_group is not None:
            bundle = number // (self.per_host or 1)
        where = PlacementGroupSchedulingStrategy(
            self.placement_group,
            placement_group_bundle_index=bundle,
            placement_group_capture_child_tasks=True,
        )
        return actor.options(scheduling_strategy=where, **self._needs)

    def shutdown(self) -> None:
        """Gives back what was created."""
        if self._created_placement_group is not None:
            remove_placement_group(self._created_placement_group)
        self.placement_group = self._created_placement_group = None


def _shown(resources: Mapping[str, float]) -> dict[str, float]:
    """Without those that each node has of its own."""
    kinds = {name: amount for name, amount in resources.items() if not name.startswith(("node:", "bundle"))}
    return {name: amount for name, amount in kinds.items() if "_group_" not in name and "memory" not in name}
