"""Runs one function of a test file in this process and leaves its result where the test looks for it.

rank_main.py FILE FUNCTION FOLDER ARGUMENTS SECONDS
"""

import faulthandler
import importlib.util
import json
import os
import sys
from pathlib import Path


def load(file: str):
    """The test file as a module, under its own name, so that spawned children find its functions again."""
    path = Path(file)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """See the text of this file."""
    file, function, folder, arguments, seconds = sys.argv[1:]
    faulthandler.dump_traceback_later(float(seconds), exit=True)
    result = getattr(load(file), function)(*json.loads(arguments))
    text = json.dumps(result)
    target = Path(folder) / f"{os.environ.get('HOROVOD_RANK', '0')}.json"
    target.write_text(text, encoding="utf-8")
    faulthandler.cancel_dump_traceback_later()
    faulthandler.dump_traceback_later(10, exit=True)  # for the end of the interpreter


if __name__ == "__main__":
    main()
