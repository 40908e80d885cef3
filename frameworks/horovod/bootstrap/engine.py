"""Starts the engine of this process with what the ranks have found out about each other."""

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import gpu_libraries, libraries
from .identity import Identity

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
    """Arguments as of ``_core.init`` and its options. Owns the descriptors of ``links`` and ``launcher``, and
    ``on_demand``, which makes links while the engine runs; nothing of them stays open when it fails.
    """
    with contextlib.ExitStack() as stack:
        if on_demand is not None:
            stack.callback(on_demand.close)
        try:
            libraries.initialize(library, identity.rank)

            from horovod import _core

            options = _core.EngineOptions()
            options.generation = generation
            options.wiring = wiring
            options.start_seconds = start_seconds
            options.hosts, options.host_names = hosts, host_names
            if library.path:
                options.library = library.path
                options.address = libraries.own_address((link[0] for link in links), bool(hosts))
            options.gpu_driver, options.gpu_library = gpu.driver, gpu.library
            options.links_on_demand = on_demand is not None
        except BaseException:
            for opened in [*(link[0] for link in links), launcher.descriptor if launcher else -1]:
                if opened >= 0:
                    os.close(opened)
            raise
        _core.init(identity[:6], links, launcher, options)
        stack.pop_all()
    if on_demand is not None:
        try:
            on_demand.start(_core)
        except BaseException:
            _core.shutdown()
            raise
