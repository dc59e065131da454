"""The command `attend`: what pip puts on the PATH, and `python -m attend`."""

import os
import pathlib
import sys


def main() -> None:
    """Becomes the command, which is a program of its own."""
    os.execv(pathlib.Path(__file__).parent / "bin/attend", ["attend", *sys.argv[1:]])


if __name__ == "__main__":
    main()
