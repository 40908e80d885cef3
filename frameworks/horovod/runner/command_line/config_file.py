"""Options of horovodrun from a YAML file, under their own names or the keys of Horovod 0.28."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from .option import Option
from .options import OPTIONS, VERBS

if TYPE_CHECKING:
    import yaml

_ENV, _CONTROLLER = "env", "controller"
_KEYS: dict[str, list[Option]] = {}  # several options: one for true, one for false, or one of a choice
for _option in OPTIONS:
    for _key in () if _option.attribute in VERBS else _option.keys:
        _KEYS.setdefault(_CONTROLLER if _option.attribute == _CONTROLLER else _key, []).append(_option)
_NUMBERS = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp")}
_SECTIONS = {key.partition(".")[0] for key in _KEYS if "." in key}


class ConfigFileError(ValueError):
    """The file cannot be used; the text says where and what to do."""


def read_options(path: str) -> list[str]:
    """The options of a file, as one would type them.

    Raises:
        ConfigFileError: it cannot be read, is no YAML, or has a key that stands for no option.
    """
    import yaml

    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), _loader())
    except OSError as error:
        raise ConfigFileError(f"--config-file {path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # the second: no UTF-8
        raise ConfigFileError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return []
    if not isinstance(content, Mapping):
        raise ConfigFileError(f"{path}: expected keys and values, such as num_proc: 2")
    return [word for key, value in _flat(content) for word in _words(path, key, value)]


def _loader() -> "type[yaml.SafeLoader]":
    """Makes texts of numbers and dates, as on a command line: YAML itself would make 3.1 of the version 3.10,
    8 of 010 and 45045 of the time 12:30:45.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: ClassVar = {
            first: [(tag, pattern) for tag, pattern in known if tag not in _NUMBERS]
            for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


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
    options = _KEYS[key]
    if value is None:
        return []
    if key == _ENV:
        return _exports(path, value)
    if key == _CONTROLLER:
        return _choice(path, key, value, options)
    if not options[0].takes_value:
        if not isinstance(value, bool):
            raise ConfigFileError(f"{path}: {key}: {value!r} is neither true nor false")
        return [word for option in options if option.is_off != value for word in option.words(True)]
    count = options[0].count
    if count > 1 and not (isinstance(value, list) and len(value) == count):
        raise ConfigFileError(f"{path}: {key}: expected the least and the most, such as {key}: [1, 60]")
    return options[0].words(value)


def _choice(path: str, key: str, value: object, options: Sequence[Option]) -> list[str]:
    chosen = [option for option in options if option.takes == str(value).lower()]
    if not chosen:
        names = ", ".join(str(option.takes) for option in options)
        raise ConfigFileError(f"{path}: {key}: {value!r} is none of {names}")
    return chosen[0].words(True)


def _exports(path: str, value: object) -> list[str]:
    """Variables as names and values, or as a list of what one would type behind -x."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return [f"--env={each}" for each in value]
    if not isinstance(value, Mapping):
        raise ConfigFileError(f"{path}: env: expected names and values, such as env: {{SEED: 1}}")
    for name, each in value.items():
        if not (each is None or isinstance(each, str)):
            raise ConfigFileError(f"{path}: env.{name}: {each!r} is no text: put it in quotes")
    return [f"--env={name}" if each is None else f"--env={name}={each}" for name, each in value.items()]


def _nearest(key: str) -> str:
    """The key that was meant, as far as one can tell, also when only its section is missing."""
    found = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.6)
    found = found or [known for known in _KEYS if known.rpartition(".")[2] == key.rpartition(".")[2]][:1]
    return f"; did you mean {found[0]}?" if found else ""
