"""Where rank 0 listens, as far as it follows from what every rank knows: the name of its host, and a port."""

from collections.abc import Mapping

from ..errors import BootstrapError
from ..identity import Identity
from ..network import endpoints, interfaces, names
from ..slurm import nodes
from ..sources import JSRUN, SRUN
from ..text import shown

_PORTS = range(20000, 32000)  # below those that the kernel gives to whoever asks for any
_TRIES = 4  # ports in a row, in case somebody listens at the first


def first_host(identity: Identity, environ: Mapping[str, str]) -> str:
    """The host of rank 0; empty when nothing says it. MASTER_ADDR comes first."""
    if environ.get("MASTER_ADDR"):
        return environ["MASTER_ADDR"]
    if identity.launcher == SRUN:
        name = next((n for n in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST") if environ.get(n)), "")
        try:
            return nodes(environ[name], 1)[0] if name else ""
        except ValueError as error:
            raise BootstrapError(f"{name}: {error}") from None
    if identity.launcher == JSRUN:  # "batch2 1 h36n03 42 h36n04 42": the first host runs the script alone
        hosts = environ.get("LSB_MCPU_HOSTS", "").split()[::2]
        return (hosts[1:2] or hosts[:1] or [""])[0]
    return ""


def derived_ports(key: bytes, allowed: range | None) -> range:
    """A few ports in a row that all ranks of a job find alike, at a place that differs from job to job."""
    among = allowed or _PORTS
    room = max(1, len(among) - _TRIES + 1)
    first = int.from_bytes(key[:8], "big") % room
    return among[first : first + _TRIES]


def ways_to_host(host: str, ports: range, seconds: float = 0.0) -> list[str]:
    """Every address at which a store on ``host`` may listen. Raises BootstrapError for a name that is still
    unknown after so many seconds.
    """
    try:
        addresses = names.addresses(host, seconds)
    except (OSError, UnicodeError) as error:
        raise BootstrapError(
            f"the name of rank 0's host, {shown(host)}, leads to no address here ({error}). Set MASTER_ADDR "
            "to an address of that host, on all ranks"
        ) from None
    # The name of one's own host may stand for an address such as 127.0.1.1, where nobody listens.
    usable = [endpoints.LOOPBACK if interfaces.is_loopback(address) else address for address in addresses]
    return [endpoints.joined(address, port) for address in dict.fromkeys(usable) for port in ports]
