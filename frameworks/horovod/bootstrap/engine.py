"""Starts the engine of this process with what the ranks have found out about each other."""

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import gpu_libraries, libraries
from .identity import Identity
from .secret import SECRET_BYTES

if TYPE_CHECKING:
    from .mesh.linker import Link
    from .mesh.on_demand import OnDemand
    from .store.client import LauncherLink


def start_engine(
    identity: Identity,
    generation: int,
    wiring: str,
    links: "list[Link]",
    launcher: "LauncherLink | None" = None,
    start_seconds: float = 0.0,
    hosts: Sequence[int] = (),
    host_names: Sequence[str] = (),
    library: libraries.Library = libraries.OUR_OWN,
    gpu: gpu_libraries.GpuLibraries = gpu_libraries.NONE,
    on_demand: "OnDemand | None" = None,
) -> None:
    """Arguments as of ``_core.init``. Owns the descriptors of ``links`` and ``launcher``, and ``on_demand``,
    which makes links while the engine runs; nothing of them stays open when it fails.
    """
    descriptor, key, frames = launcher or (-1, bytes(SECRET_BYTES), 0)
    with contextlib.ExitStack() as stack:
        if on_demand is not None:
            stack.callback(on_demand.close)
        try:
            libraries.initialize(library, identity.rank)

            from horovod import _core
        except BaseException:
            for opened in [*(link[0] for link in links), descriptor]:
                if opened >= 0:
                    os.close(opened)
            raise
        _core.init(
            rank=identity.rank,
            size=identity.size,
            local_rank=identity.local_rank,
            local_size=identity.local_size,
            cross_rank=identity.cross_rank,
            cross_size=identity.cross_size,
            generation=generation,
            wiring=wiring,
            links=links,
            hosts=hosts,
            host_names=host_names,
            launcher_fd=descriptor,
            launcher_key=key,
            launcher_frames=frames,
            start_seconds=start_seconds,
            library=library.path,
            address=libraries.own_address((link[0] for link in links), bool(hosts)) if library.path else "",
            gpu_driver=gpu.driver,
            gpu_library=gpu.library,
            links_on_demand=on_demand is not None,
        )
        stack.pop_all()
    if on_demand is not None:
        try:
            on_demand.start(_core)
        except BaseException:
            _core.shutdown()
            raise
