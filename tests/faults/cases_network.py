"""Layer N: what happens to connections."""

from cases_resources import can_run
from fault_case import NotHere, case, elsewhere
from stage import Stage
from trial import WRONG_RESULT

TCP = {"HOROVOD_TRANSPORT": "tcp"}
END = r"rank {} \(localhost, pid \d+\)"
ENDS = rf"link between {END.format(0)} and {END.format(1)} broke while both were alive"


@case(32, "N", "one end of a link is half closed, or reset", limit=2.0, quick=True)
def half_closed(stage: Stage) -> None:
    for scene, role in (
        ("half_close", "data"),
        ("half_close", "control"),
        ("reset", "data"),
        ("reset", "watch"),
    ):
        job = stage.job(3, f"network:{scene}", role, env=TCP)
        stage.fails(job, 1, f"the {role} {ENDS}")


@case(35, "N", "foreign bytes in a link", limit=2.0)
def foreign_bytes(stage: Stage) -> None:
    for role in ("data", "control", "watch"):
        job = stage.job(3, "network:disturb", role, 16, env=TCP)
        assert job.end() == 1, job.output
        assert "rank 1" in job.report()[0] and WRONG_RESULT not in job.output, job.output
        stage.seconds = max(stage.seconds or 0.0, job.seconds)


@case(37, "N", "a link is cut within a message, at several lengths", limit=2.0)
def cut_within_a_message(stage: Stage) -> None:
    for role, count in (("data", 0), ("data", 1), ("data", 24), ("control", 7), ("watch", 3)):
        job = stage.job(3, "network:cut", role, count, env=TCP)
        assert job.end() == 1, job.output
        assert "rank 1" in job.report()[0] and WRONG_RESULT not in job.output, job.output
        stage.seconds = max(stage.seconds or 0.0, job.seconds)


@case(38, "N", "a rank never arrives", limit=8.0)
def never_arrives(stage: Stage) -> None:
    job = stage.job(3, "network:late", 60, options=["--start-timeout", "4"])
    stage.fails(
        job, 1, "", r"rank 1\b.*(missing|not arrived|never|did not)|missing.*rank 1\b|waits? for rank 1"
    )


@case(43, "N", "all ports are taken, and the job needs none", limit=None)
def no_ports(stage: Stage) -> None:
    if not can_run(["unshare", "-n", "true"]):
        raise NotHere("needs a network namespace of its own")
    # Without a single address nothing can be bound: a job within one host needs no port.
    stage.succeeds(stage.job(3, "process:train", 100, wrap=["unshare", "-n"]))


for number, title in {
    39: "a host loses its power",
    40: "a name does not resolve, or to an IPv6 address alone",
    41: "a network interface goes down",
    44: "a firewall lets only some ports through",
}.items():
    elsewhere(number, "N", title, "several hosts")
