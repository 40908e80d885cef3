"""Every option of Horovod 0.28 is known by name: it works, is so anyway, or a warning says why not."""

import pytest

from horovod.runner.command_line import options
from horovod.runner.launch import parse_args

# With a value where they take one.
WORK = """
-np=2 --num-proc=2 -n=2 --disable-cache --start-timeout=9 --output-filename=logs --verbose -H=localhost:2
--hosts=localhost:2 --fusion-threshold-mb=1 --cycle-time-ms=1 --cache-capacity=1 --autotune --no-autotune
--autotune-log-file=a.csv --autotune-warmup-samples=1 --autotune-steps-per-sample=1
--autotune-bayes-opt-max-samples=1 --autotune-gaussian-process-noise=0.5 --timeline-filename=t.json
--timeline-mark-cycles --no-timeline-mark-cycles --stall-check --no-stall-check
--stall-check-warning-time-seconds=1 --stall-check-shutdown-time-seconds=1 --thread-affinity=0
--log-level=INFO --log-with-timestamp --log-without-timestamp --log-hide-timestamp --no-log-hide-timestamp
-prefix-timestamp --prefix-output-with-timestamp --gloo -p=22 --ssh-port=22 -i=key --ssh-identity-file=key
--gloo-timeout-seconds=9 --network-interfaces=lo,eth0 --network-interface=lo --mpi --jsrun
--mpi-threads-disable --no-mpi-threads-disable
""".split()
SO_ANYWAY = """
--tcp --hierarchical-allreduce --no-hierarchical-allreduce
--hierarchical-allgather --no-hierarchical-allgather --no-torus-allreduce
""".split()
WARNED = ["--torus-allreduce", "--num-nccl-streams=2"]
ELASTIC = "--max-np=4 --reset-limit=3 --elastic-timeout=60 --slots-per-host=2".split()
OTHERS = ["--mpi-args=-v", "--binding-args=-v", "--blacklist-cooldown-range 1 2", *ELASTIC, *WARNED]


@pytest.mark.parametrize("option", WORK + SO_ANYWAY + WARNED + ELASTIC)
@pytest.mark.parametrize("separator", ["=", " "])
def test_it_is_accepted_and_the_command_stays_whole(option: str, separator: str) -> None:
    command = ["python", "train.py", "--mpi", "-p", "2"]
    arguments = parse_args(["-np", "1", *option.split("=" if separator == " " else None), *command])
    assert arguments.command == command


@pytest.mark.parametrize("line", OTHERS)
def test_a_warning_names_what_has_no_effect(line: str) -> None:
    (warning,) = parse_args(["-np", "2", *line.split(), "prog"]).warnings
    assert warning.startswith(f"{line.replace('=', ' ').split()[0]} has no effect: ")


def test_an_elastic_job_has_its_options() -> None:
    elastic = ["--min-np=2", "--max-np=4", "--reset-limit=3", "--elastic-timeout=60"]
    assert parse_args(["-np", "2", "-H", "localhost:4", *elastic, "prog"]).warnings == []


def test_what_is_so_anyway_sets_nothing() -> None:
    arguments = parse_args(["-np", "2", *SO_ANYWAY, "prog"])
    assert options.environment(arguments) == {} and arguments.warnings == []


@pytest.mark.parametrize("option", ["--mpi-args=-v", "--binding-args=-v"])
def test_options_of_other_launchers_need_one(option: str) -> None:
    for controller in ("--mpi", "--jsrun"):
        arguments = parse_args(["-np", "2", controller, option, "prog"])
        assert arguments.controller == controller.lstrip("-") and arguments.warnings == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--gloo --mpi", "not allowed with argument --gloo"),
        ("--jsrun -H localhost:2", "-H: jsrun takes the hosts of its LSF job"),
        ("--mpi --bind-to core", "--bind-to: mpirun and jsrun bind ranks in their own ways"),
        ("--mpi --gpus-per-rank 1", "--gpus-per-rank: mpirun and jsrun start ranks in their own ways"),
        ("--mpi --wdir d", "--wdir: mpirun and jsrun start ranks in their own ways"),
        ("--bind-to socket", "'socket' is not one of core, numa, none"),
        ("--jsrun --ranks 0", "--ranks: jsrun does not tell"),
        ("--jsrun --output-filename d", "--output-filename: jsrun does not tell"),
    ],
)
def test_what_does_not_go_together(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_args(["-np", "2", *line.split(), "prog"])
    assert said in capsys.readouterr().err


def test_files_of_hosts(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hosts"
    file.write_text("# ours\nlocalhost slots=2  # two\n\n127.0.0.1\n")
    for flag in ("-hostfile", "--hostfile"):
        assert parse_args(["-np", "auto", flag, str(file), "prog"]).num_proc == 3
    for content, said in (
        ("localhost slots=x", "localhost slots=2"),
        ("", "has no slots"),
    ):
        file.write_text(content)
        with pytest.raises(SystemExit):
            parse_args(["-np", "1", "--hostfile", str(file), "prog"])
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse_args(["-np", "1", "--hostfile", str(file), "-H", "localhost:1", "prog"])
    assert "give one of them" in capsys.readouterr().err
