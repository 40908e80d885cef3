"""Options of horovodrun from a YAML file, under the keys of Horovod 0.28."""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path

# A key, its section in front, and the option that it stands for; two options where it is true or false.
_Flags = str | tuple[str, str]
_SECTIONS: dict[str, dict[str, _Flags]] = {
    "params": {
        "fusion_threshold_mb": "--fusion-threshold-mb",
        "cycle_time_ms": "--cycle-time-ms",
        "cache_capacity": "--cache-capacity",
        "hierarchical_allreduce": ("--hierarchical-allreduce", "--no-hierarchical-allreduce"),
        "hierarchical_allgather": ("--hierarchical-allgather", "--no-hierarchical-allgather"),
        "torus_allreduce": ("--torus-allreduce", "--no-torus-allreduce"),
    },
    "autotune": {
        "enabled": ("--autotune", "--no-autotune"),
        "log_file": "--autotune-log-file",
        "warmup_samples": "--autotune-warmup-samples",
        "steps_per_sample": "--autotune-steps-per-sample",
        "bayes_opt_max_samples": "--autotune-bayes-opt-max-samples",
        "gaussian_process_noise": "--autotune-gaussian-process-noise",
    },
    "timeline": {
        "filename": "--timeline-filename",
        "mark_cycles": ("--timeline-mark-cycles", "--no-timeline-mark-cycles"),
    },
    "stall_check": {
        "enabled": ("--stall-check", "--no-stall-check"),
        "warning_time_seconds": "--stall-check-warning-time-seconds",
        "shutdown_time_seconds": "--stall-check-shutdown-time-seconds",
    },
    "library_options": {
        "mpi_threads_disable": ("--mpi-threads-disable", "--no-mpi-threads-disable"),
        "mpi_args": "--mpi-args",
        "binding_args": "--binding-args",
        "tcp": ("--tcp", ""),
        "num_nccl_streams": "--num-nccl-streams",
        "thread_affinity": "--thread-affinity",
        "gloo_timeout_seconds": "--gloo-timeout-seconds",
    },
    "logging": {
        "level": "--log-level",
        "with_timestamp": ("--log-with-timestamp", "--log-without-timestamp"),
        "hide_timestamp": ("--log-hide-timestamp", "--no-log-hide-timestamp"),
        "prefix_output_with_timestamp": ("--prefix-output-with-timestamp", ""),
    },
}
_TOP: dict[str, _Flags] = {
    "controller": "",  # its value is the option
    "env": "--env",
    "num_proc": "--num-proc",
    "hosts": "--hosts",
    "hostfile": "--hostfile",
    "start_timeout": "--start-timeout",
    "timeout": "--timeout",
    "events": "--events",
    "grace": "--grace",
    "min_np": "--min-np",
    "min_num_proc": "--min-np",
    "max_np": "--max-np",
    "max_num_proc": "--max-np",
    "host_discovery_script": "--host-discovery-script",
    "slots_per_host": "--slots-per-host",
    "spares": "--spares",
    "elastic_timeout": "--elastic-timeout",
    "reset_limit": "--reset-limit",
    "checkpoint_dir": "--checkpoint-dir",
    "preemption_signal": "--preemption-signal",
    "preemption_file": "--preemption-file",
    "chaos": "--chaos",
    "blacklist_cooldown_range": "--blacklist-cooldown-range",
    "output_filename": "--output-filename",
    "prefix_output_with_timestamp": ("--prefix-output-with-timestamp", ""),
    "ranks": "--ranks",
    "stdin_rank": "--stdin-rank",
    "network_interfaces": "--network-interfaces",
    "network_interface": "--network-interface",
    "port_range": "--port-range",
    "nnodes": "--nnodes",
    "nproc_per_node": "--nproc-per-node",
    "ssh_port": "--ssh-port",
    "ssh_identity_file": "--ssh-identity-file",
    "ssh_fan_out": "--ssh-fan-out",
    "remote_shell": "--remote-shell",
    "rendezvous": "--rendezvous",
    "bind_to": "--bind-to",
    "gpus_per_rank": "--gpus-per-rank",
    "wdir": "--wdir",
    "include": "--include",
    "exclude": "--exclude",
    "max_restarts": "--max-restarts",
    "wait_for_hosts": "--wait-for-hosts",
    "node_rank": "--node-rank",
    "host_timeout": "--host-timeout",
    "disable_cache": ("--disable-cache", ""),
    "verbose": ("--verbose", ""),
}
_ENV = "env"
_RANGES = ("blacklist_cooldown_range",)  # two values
_CONTROLLERS = ("gloo", "mpi", "jsrun")
_KEYS = _TOP | {f"{name}.{key}": flags for name, keys in _SECTIONS.items() for key, flags in keys.items()}


class ConfigFileError(ValueError):
    """The file cannot be used; the text says where and what to do."""


def read_options(path: str) -> list[str]:
    """The options of a file, as one would type them.

    Raises:
        ConfigFileError: it cannot be read, is no YAML, or has a key that stands for no option.
    """
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigFileError(f"--config-file {path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # the second: no UTF-8, no such date
        raise ConfigFileError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return []
    if not isinstance(content, Mapping):
        raise ConfigFileError(f"{path}: expected keys and values, such as num_proc: 2")
    return [word for key, value in _flat(content) for word in _words(path, key, value)]


def _flat(content: Mapping[object, object]) -> Iterator[tuple[str, object]]:
    for name, value in content.items():
        key = str(name).replace("-", "_")
        if isinstance(value, Mapping) and key != _ENV:
            yield from ((f"{key}.{inner}", each) for inner, each in _flat(value))
        elif not (key in _SECTIONS and value is None):  # a section without keys
            yield key, value


def _words(path: str, key: str, value: object) -> list[str]:
    if key not in _KEYS:
        raise ConfigFileError(f"{path}: {key} is no option of horovodrun{_nearest(key)}")
    flags = _KEYS[key]
    if value is None:
        return []
    if key == "controller":
        return [_controller(path, value)]
    if key == _ENV:
        return _exports(path, value)
    if isinstance(flags, tuple):
        if not isinstance(value, bool):
            raise ConfigFileError(f"{path}: {key}: {value!r} is neither true nor false")
        return [flag] if (flag := flags[0] if value else flags[1]) else []
    if key in _RANGES:
        return [flags, *_range(path, key, value)]
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return [f"{flags}={text}"]


def _range(path: str, key: str, value: object) -> list[str]:
    if not isinstance(value, list) or len(value) != 2:
        raise ConfigFileError(f"{path}: {key}: expected the least and the most, such as {key}: [1, 60]")
    return [str(each) for each in value]


def _exports(path: str, value: object) -> list[str]:
    """Variables as names and values, or as a list of what one would type behind -x."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return [f"--env={each}" for each in value]
    if not isinstance(value, Mapping):
        raise ConfigFileError(f"{path}: env: expected names and values, such as env: {{SEED: 1}}")
    for name, each in value.items():
        if each is not None and (isinstance(each, bool) or not isinstance(each, str | int | float)):
            raise ConfigFileError(f"{path}: env.{name}: {each!r} is no text: put it in quotes")
    return [f"--env={name}" if each is None else f"--env={name}={each}" for name, each in value.items()]


def _controller(path: str, value: object) -> str:
    name = str(value).lower()
    if name not in _CONTROLLERS:
        raise ConfigFileError(f"{path}: controller: {value!r} is none of {', '.join(_CONTROLLERS)}")
    return f"--{name}"


def _nearest(key: str) -> str:
    """The key that was meant, as far as one can tell, also when only its section is missing."""
    found = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.6)
    found = found or [known for known in _KEYS if known.rpartition(".")[2] == key.rpartition(".")[2]][:1]
    return f"; did you mean {found[0]}?" if found else ""
