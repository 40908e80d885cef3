"""Lightning on the backend "hvd"::

    from horovod.torch.distributed.lightning import HorovodStrategy

    trainer = lightning.Trainer(strategy=HorovodStrategy(), accelerator="cpu", devices=2)

The import makes it known by the name "hvd", too: ``Trainer(strategy="hvd")``. The package ``lightning`` is
needed.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry

from horovod.torch.distributed.registration import NAME, register

# Which is untyped where lightning is not installed.
_Strategy: Any = DDPStrategy


class HorovodStrategy(_Strategy):
    """DistributedDataParallel over the core. Takes the arguments of ``DDPStrategy``."""

    strategy_name = NAME

    def __init__(self, *arguments: Any, **options: Any) -> None:
        register()
        super().__init__(*arguments, **{"process_group_backend": NAME, **options})


if NAME not in StrategyRegistry:
    StrategyRegistry.register(NAME, HorovodStrategy, description="DDP over horovod", start_method="popen")
