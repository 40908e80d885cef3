"""Compares the backend "hvd" with gloo on torch's own tests of torch.distributed::

    python tests/torch_suite/run.py [--np 2,4] [pattern ...]
    make torch-suite [NP=2,4] [TORCH_TESTS="pattern ..."]

Runs every test with both. Those that torch skips for all backends but gloo run once more with "hvd" in gloo's
place. Ends with an error when one that gloo passes does not pass and is not in gaps.json, which says why.
Needs what torch's tests need: ``pip install expecttest``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
LIMIT_SECONDS = 3600

Outcomes = dict[str, str]


def run_suite(backend: str, ranks: int, patterns: list[str], stands_in: bool = False) -> Outcomes:
    """The outcome of each test on one backend."""
    paths = [str(HERE.parents[1] / "frameworks"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "BACKEND": backend,
        "WORLD_SIZE": str(ranks),
        "STAND_IN": str(int(stands_in)),
        "OMP_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [sys.executable, str(HERE / "suite.py"), str(results), *patterns]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
        if not results.exists():
            raise SystemExit(f"the suite of {backend} did not end:\n{done.stdout}\n{done.stderr}")
        outcomes: Outcomes = json.loads(results.read_text())
    return outcomes


def compare(ranks: int, patterns: list[str]) -> tuple[Outcomes, Outcomes]:
    """The outcomes of gloo, and those of "hvd"."""
    gloo = run_suite("gloo", ranks, patterns)
    ours = run_suite("hvd", ranks, patterns)
    missing = [name for name, told in gloo.items() if told == "passed" and ours[name].startswith("skipped")]
    if missing:
        ours |= run_suite("hvd", ranks, missing, stands_in=True)
    return gloo, ours


def gaps(gloo: Outcomes, ours: Outcomes) -> Outcomes:
    """The tests that gloo passes and "hvd" does not."""
    return {name: ours[name] for name, told in gloo.items() if told == "passed" and ours[name] != "passed"}


def known_gaps(ranks: int) -> Outcomes:
    """By test, why it does not pass with so many ranks."""
    found: dict[str, Outcomes] = json.loads((HERE / "gaps.json").read_text())
    return {**found["all"], **found.get(str(ranks), {})}


def report(ranks: int, gloo: Outcomes, ours: Outcomes) -> bool:
    """Prints the comparison; whether there is no gap that is not known."""
    for name, outcomes in (("gloo", gloo), ("hvd", ours)):
        counts = Counter(told.partition(":")[0] for told in outcomes.values())
        print(f"np={ranks} {name}: {', '.join(f'{count} {told}' for told, count in counts.most_common())}")
    known, well = known_gaps(ranks), True
    for name, told in gaps(gloo, ours).items():
        well = well and name in known
        print(f"np={ranks} gloo passes {name}, hvd: {told}\n    {known.get(name, 'NOT KNOWN')}")
    return well


def main() -> None:
    """See the text of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--np", default="2,4", help="numbers of ranks")
    parser.add_argument("patterns", nargs="*", default=["*"], help="names of tests")
    arguments = parser.parse_args()
    well = [report(ranks, *compare(ranks, arguments.patterns)) for ranks in map(int, arguments.np.split(","))]
    sys.exit(not all(well))


if __name__ == "__main__":
    main()
