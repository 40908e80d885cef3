"""Entry point of the console script ``horovodrun-agent``: the launcher's hand on a host."""

from .nodes import agent


def run_commandline() -> None:
    """Serves the launcher that has started it by a remote shell, over standard input and output."""
    agent.main()


if __name__ == "__main__":
    run_commandline()
