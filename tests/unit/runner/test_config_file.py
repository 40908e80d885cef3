"""Options from a YAML file: the keys of Horovod 0.28, the command line first, and no key misread."""

from pathlib import Path

import pytest

from horovod.runner import placing
from horovod.runner.command_line import config_file, options
from horovod.runner.launch import parse_args

EVERYTHING = """
num_proc: 3
verbose: true
controller: gloo
params:
    fusion_threshold_mb: 32
    cycle_time_ms: 2.5
    cache_capacity: 64
    hierarchical_allreduce: true
autotune:
    enabled: yes
    log_file: tune.csv
    warmup_samples: 1
    steps_per_sample: 2
    bayes_opt_max_samples: 3
    gaussian_process_noise: 0.5
timeline:
    filename: t.json
    mark-cycles: true
stall_check:
    enabled: false
    warning_time_seconds: 7
    shutdown_time_seconds: 8
library_options:
    thread_affinity: 0
    mpi_threads_disable: true
logging:
    level: INFO
    with_timestamp: false
"""
AS_VARIABLES = {
    "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
    "HOROVOD_CYCLE_TIME": "2.5",
    "HOROVOD_CACHE_CAPACITY": "64",
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_LOG": "tune.csv",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "3",
    "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.5",
    "HOROVOD_TIMELINE": "t.json",
    "HOROVOD_TIMELINE_MARK_CYCLES": "1",
    "HOROVOD_STALL_CHECK_DISABLE": "1",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "7",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "8",
    "HOROVOD_THREAD_AFFINITY": "0",
    "HOROVOD_MPI_THREADS_DISABLE": "1",
    "HOROVOD_LOG_LEVEL": "info",
    "HOROVOD_LOG_HIDE_TIME": "1",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def test_every_section_is_read(file: Path) -> None:
    file.write_text(EVERYTHING)
    arguments = parse_args(["--config-file", str(file), "python", "train.py"])
    assert (arguments.num_proc, arguments.verbose, arguments.command) == (3, True, ["python", "train.py"])
    assert options.environment(arguments) == AS_VARIABLES


def test_the_command_line_comes_first(file: Path) -> None:
    file.write_text("params: {fusion_threshold_mb: 1, cycle_time_ms: 9}\nautotune: {enabled: true}\n")
    line = ["--fusion-threshold-mb", "2", "--config-file", str(file), "--no-autotune", "-np", "2", "prog"]
    variables = options.environment(parse_args(line))
    assert variables == {
        "HOROVOD_FUSION_THRESHOLD": str(2 << 20),
        "HOROVOD_CYCLE_TIME": "9",
        "HOROVOD_AUTOTUNE": "0",
    }


@pytest.mark.parametrize("own", [["-H", "localhost:3"], ["--hostfile", "own"]])
@pytest.mark.parametrize("key", ["hosts: localhost:2", "hostfile: other"])
def test_hosts_of_the_command_line_replace_those_of_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, own: list[str], key: str
) -> None:
    monkeypatch.chdir(file.parent)
    for name, slots in (("own", 3), ("other", 2)):
        Path(name).write_text(f"localhost slots={slots}\n")
    file.write_text(key)
    assert parse_args(["--config-file", str(file), *own, "-np", "auto", "prog"]).num_proc == 3
    assert parse_args(["--config-file", str(file), "-np", "auto", "prog"]).num_proc == 2


@pytest.mark.parametrize("content", ["", "params:\n", "params: {cycle_time_ms: null}"])
def test_what_is_empty_says_nothing(file: Path, content: str) -> None:
    file.write_text(content)
    assert options.environment(parse_args(["--config-file", str(file), "-np", "2", "prog"])) == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("params: {fusion_treshold_mb: 1}", "did you mean params.fusion_threshold_mb?"),
        ("blacklist_cooldown_range: 3", "expected the least and the most"),
        ("params: {cycle_tme_ms: 1}", "params.cycle_tme_ms is no option of horovodrun; did you mean"),
        ("fusion_threshold_mb: 1", "did you mean params.fusion_threshold_mb?"),
        ("xyzzy: 1", "xyzzy is no option of horovodrun (see"),
        ("params: {cycle_time_ms: fast}", "argument --cycle-time-ms: "),
        ("autotune: {enabled: 7}", "autotune.enabled: '7' is neither true nor false"),
        ("controller: carrier", "none of gloo, mpi, jsrun"),
        ("- a list", "expected keys and values"),
        ("env: 3", "env: expected names and values"),
        ("env: {DEBUG: yes}", "env.DEBUG: True is no text: put it in quotes"),
        ("env: {HOROVOD_RANK: 1}", "says who a rank is"),
        ("env: [SEED 1]", "no name of a variable"),
        ("a: [", "no YAML"),
        ("num_proc: 2026-13-45", "'2026-13-45' is neither a number of ranks nor auto"),
        ("[" * 9999, "no YAML"),
    ],
)
def test_what_cannot_be_read_is_named(
    file: Path, content: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(content)
    with pytest.raises(SystemExit) as ended:
        parse_args(["--config-file", str(file), "-np", "2", "prog"])
    message = capsys.readouterr().err
    assert ended.value.code == 2 and message.count("\n") == 1
    assert message.startswith(f"horovodrun: error: {file}: ") and said in message


def test_every_option_that_takes_a_value_has_a_key_and_no_key_belongs_to_two() -> None:
    owners: dict[str, set[str]] = {}
    for option in options.OPTIONS:
        for key in option.keys:
            owners.setdefault(key, set()).add(option.attribute)
    attributes = {key: names for key, names in owners.items() if not key.startswith("params.")}
    assert all(len(names) == 1 for names in attributes.values())
    assert {"num_proc", "timeline.filename", "min_np", "min_num_proc", "rendezvous"} <= owners.keys()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("hang_timeout: 4", "--hang-timeout=4"),
        ("port-range: 20000-20999", "--port-range=20000-20999"),
        ("slots: 2", "--slots-per-host=2"),
    ],
)
def test_an_option_without_a_section_goes_by_its_own_name(file: Path, line: str, word: str) -> None:
    file.write_text(line)
    assert config_file.read_options(str(file)) == [word]


@pytest.mark.parametrize("key", ["version", "json", "print_config", "config_file"])
def test_a_file_says_how_and_not_what(file: Path, key: str) -> None:
    file.write_text(f"{key}: true\n")
    with pytest.raises(config_file.ConfigFileError, match=f"{key} is no option"):
        config_file.read_options(str(file))


def test_numbers_and_dates_stay_as_they_are_written(file: Path) -> None:
    file.write_text(
        "env: {PYTHON: 3.10, MASK: 010, LIMIT: 12:30:45, SIZE: 1_000, DAY: 2026-01-02, RATE: 1e-4, NONE: }\n"
        "stall_check: {warning_time_seconds: 07}\n"
    )
    said = ["PYTHON=3.10", "MASK=010", "LIMIT=12:30:45", "SIZE=1_000", "DAY=2026-01-02", "RATE=1e-4", "NONE"]
    words = [*(f"--env={each}" for each in said), "--stall-check-warning-time-seconds=07"]
    assert config_file.read_options(str(file)) == words


ELASTIC = """
num_proc: 3
min_np: 2
max_num_proc: 4
spares: 1
elastic_timeout: 30
reset_limit: 5
checkpoint_dir: /kept
preemption_signal: USR1
preemption_file: /run/notice
chaos: kill:every=20s
blacklist_cooldown_range: [2, 9]
"""


def test_an_elastic_job_is_described(file: Path) -> None:
    file.write_text(ELASTIC)
    arguments = parse_args(["--config-file", str(file), "-H", "localhost:4", "--spares", "0", "prog"])
    assert placing.is_elastic(arguments)
    assert (arguments.min_np, arguments.num_proc, arguments.max_np) == (2, 3, 4)
    assert (arguments.spares, arguments.elastic_timeout, arguments.reset_limit) == (0, 30.0, 5)
    assert arguments.blacklist_cooldown_range == [2.0, 9.0]
    assert (arguments.chaos.number, arguments.chaos.period) == (9, 20.0)
    assert options.environment(arguments) == {
        "HOROVOD_CHECKPOINT_DIR": "/kept",
        "HOROVOD_ELASTIC_TIMEOUT": "30.0",
        "HOROVOD_PREEMPTION_SIGNAL": "USR1",
        "HOROVOD_PREEMPTION_FILE": "/run/notice",
    }


def test_a_script_names_the_hosts_of_an_elastic_job(file: Path) -> None:
    file.write_text("min_num_proc: 2\nhost_discovery_script: ./hosts.sh\nslots_per_host: 4\n")
    arguments = parse_args(["--config-file", str(file), "prog"])
    assert (arguments.host_discovery_script, arguments.slots_per_host) == ("./hosts.sh", 4)


def test_what_means_nothing_here_does_not_end_the_job(file: Path) -> None:
    file.write_text(
        "library_options: {num_nccl_streams: 2, gloo_timeout_seconds: 40, mpi_args: '-v', tcp: true}\n"
        "params: {torus_allreduce: true, hierarchical_allreduce: true}\ncontroller: GLOO\n"
    )
    arguments = parse_args(["--config-file", str(file), "-np", "2", "prog"])
    assert [text.split()[0] for text in arguments.warnings] == [
        "--torus-allreduce",
        "--num-nccl-streams",
        "--mpi-args",
    ]
    assert options.environment(arguments) == {"HOROVOD_GLOO_TIMEOUT_SECONDS": "40"}
    assert arguments.controller == "gloo"


def test_every_key_of_the_reference_is_read(file: Path) -> None:
    """Those of Horovod 0.28 that no other test has."""
    file.write_text(
        "library_options: {mpi_threads_disable: false, tcp: true, mpi_args: '-v'}\n"
        "params: {hierarchical_allgather: false, torus_allreduce: false}\n"
        "logging: {hide_timestamp: false, prefix_output_with_timestamp: true}\ncontroller: mpi\n"
    )
    arguments = parse_args(["--config-file", str(file), "-np", "2", "prog"])
    assert (arguments.controller, arguments.mpi_args) == ("mpi", "-v")
    assert arguments.prefix_output_with_timestamp
    assert options.environment(arguments) == {
        "HOROVOD_MPI_THREADS_DISABLE": "0",
        "HOROVOD_LOG_HIDE_TIME": "0",
    }
    overruled = parse_args(["--config-file", str(file), "--gloo", "-np", "2", "prog"])
    assert overruled.controller == "gloo" and not placing.uses_mpi(overruled)


def test_a_missing_file_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_args(["--config-file", str(file), "-np", "2", "prog"])
    assert f"--config-file {file}: No such file" in capsys.readouterr().err
