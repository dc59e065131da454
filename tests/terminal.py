"""The command as a person sees it: on a terminal, where it says how far it is."""

import os
import pty
import signal
import struct
import subprocess
import termios
from fcntl import ioctl

import pytest


def run_in_terminal(arguments, folder, environment, **options):
    """The status of the process, on one core, and what it writes to a terminal of 80 columns. `options` are Popen's."""
    try:
        leader, follower = pty.openpty()
    except OSError as error:
        pytest.skip(f"no pseudo-terminal to be had: {error}")
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))

    def prepare():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # which nohup ignores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    options = {"stdin": subprocess.DEVNULL, "stdout": follower, "stderr": follower} | options
    process = subprocess.Popen(arguments, cwd=folder, env=environment, preexec_fn=prepare, **options)
    os.close(follower)
    written = b""
    with open(leader, "rb", buffering=0) as terminal:
        try:
            while piece := terminal.read(65536):
                written += piece
        except OSError:  # the other end is closed
            pass
    return process.wait(), written.decode().replace("\r\n", "\n")
