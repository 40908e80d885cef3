"""All cases, by layer."""

import cases_collective
import cases_cuts
import cases_hosts
import cases_launcher
import cases_network
import cases_process
import cases_resources
import cases_security
from fault_case import TABLE

LAYERS = (
    cases_process,
    cases_network,
    cases_hosts,
    cases_cuts,
    cases_collective,
    cases_resources,
    cases_launcher,
    cases_security,
)

__all__ = ["LAYERS", "TABLE"]
