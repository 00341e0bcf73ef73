"""Rings in Python, by the package `liburing` of PyPI: for `cargo xtask programs python`."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import liburing as uring


def one(ring, prepare):
    sqe = uring.io_uring_get_sqe(ring)
    prepare(sqe)
    sqe.user_data = 7
    uring.io_uring_submit(ring)
    cqe = uring.Cqe()
    uring.io_uring_wait_cqe(ring, cqe)
    entry = cqe[0]
    result, tag = entry.res, entry.user_data
    uring.io_uring_cqe_seen(ring, entry)
    assert tag == 7, tag
    return result


def turns(count):
    """Writes and reads a file through a ring: what was read last."""
    ring = uring.Ring()
    uring.io_uring_queue_init(8, ring)
    text = b""
    with tempfile.TemporaryFile() as file:
        for turn in range(count):
            text = b"turn %d" % turn
            back = bytearray(len(text))
            assert one(ring, lambda sqe: uring.io_uring_prep_write(sqe, file.fileno(), text, 0)) == len(text)
            assert one(ring, lambda sqe: uring.io_uring_prep_read(sqe, file.fileno(), back, 0)) == len(text)
            assert back == text, back
    uring.io_uring_queue_exit(ring)
    return text


def app(_environment, respond):
    """A WSGI application that answers by a ring."""
    respond("200 OK", [("Content-Type", "text/plain")])
    return [turns(3)]


def forked():
    """A child of fork, as a server's workers are."""
    child = os.fork()
    if child == 0:
        os._exit(0 if turns(20) == b"turn 19" else 1)
    assert os.waitpid(child, 0)[1] == 0


def gunicorn():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    folder, module = os.path.split(os.path.abspath(__file__))
    command = [sys.executable, "-m", "gunicorn", "--log-level=warning", "--workers=2", "--bind", address, "--chdir", folder]
    server = subprocess.Popen(command + [module.removesuffix(".py") + ":app"])
    try:
        for attempt in range(100):
            try:
                answer = urllib.request.urlopen("http://%s/" % address, timeout=10).read()
                break
            except OSError:
                assert server.poll() is None and attempt < 99, "the server does not answer"
                time.sleep(0.1)
        assert answer == b"turn 2", answer
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


if __name__ == "__main__":
    if sys.argv[1:] != ["child"]:
        subprocess.run([sys.executable, __file__, "child"], check=True)
    assert turns(100) == b"turn 99"
    forked()
    if sys.argv[1:] != ["child"]:
        gunicorn()
        print("all well")
