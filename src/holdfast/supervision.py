"""Being one of several workers under a supervisor, or a service of systemd: say how it goes, end with it."""

import ctypes
import os
import signal
import socket
import sys
import threading
import time

SUPERVISOR = "HOLDFAST_SUPERVISOR"
"""The process number of the supervisor, in the environment of its workers."""

_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 1.0


def is_supervised() -> bool:
    return os.environ.get(SUPERVISOR) == str(os.getppid())


def end_with_parent() -> None:
    """Be asked to stop when the supervisor is gone, however it went."""
    if SUPERVISOR not in os.environ:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    else:
        threading.Thread(target=_watch_parent, name="holdfast-parent", daemon=True).start()
    if not is_supervised():  # it went before we could ask
        os.kill(os.getpid(), signal.SIGTERM)


def tell(state: str) -> None:
    """To whoever started us and listens, in the words of sd_notify: READY=1, STOPPING=1, STATUS=…"""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
            client.connect("\0" + address[1:] if address.startswith("@") else address)
            client.sendall(state.encode())
    except OSError:
        return  # nobody listens any more


def _watch_parent() -> None:
    while is_supervised():
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
