"""A name of Horovod 0.28."""

from collections.abc import Collection

from horovod.bootstrap.network import endpoints, interfaces


def get_driver_ip(nics: Collection[str] | None = None) -> str:
    """An address at which others reach this host; of one of the interfaces ``nics``, if there are any.

    Raises:
        RuntimeError: none of the interfaces has an address.
    """
    if not nics:
        return next(iter(interfaces.default_routes()), endpoints.LOOPBACK)
    for address in interfaces.addresses():
        if address.interface in nics:
            return address.host
    raise RuntimeError(f"none of the network interfaces {', '.join(sorted(nics))} has an address")
