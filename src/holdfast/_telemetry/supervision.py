"""Supervision: report the state of this process to systemd or a supervisor, and end with the supervisor."""

import ctypes
import os
import signal
import socket
import sys
import threading
import time

SUPERVISOR = "HOLDFAST_SUPERVISOR"
"""Holds the process id of the supervisor in the environment of its child processes."""

_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 1.0


def is_supervised() -> bool:
    return os.environ.get(SUPERVISOR) == str(os.getppid())


def end_with_parent() -> None:
    """Receive SIGTERM when the supervisor ends, for whatever reason."""
    if SUPERVISOR not in os.environ:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    else:
        threading.Thread(target=_watch_parent, name="holdfast-parent", daemon=True).start()
    if not is_supervised():  # it ended before we could ask
        os.kill(os.getpid(), signal.SIGTERM)


def notify_supervisor(state: str) -> None:
    """Send a state in the protocol of sd_notify: READY=1, STOPPING=1, STATUS=…"""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
            client.connect("\0" + address[1:] if address.startswith("@") else address)
            client.sendall(state.encode())
    except OSError:
        return  # the supervisor no longer listens


def _watch_parent() -> None:
    while is_supervised():
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
