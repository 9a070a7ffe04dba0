"""Runs MiniStack on a free port of 127.0.0.1, and leaves nothing behind.

Prints one line, `ready http://127.0.0.1:PORT`, once it answers. Ends when standard input ends, on SIGTERM and on
Ctrl-C, and then ends MiniStack and every function that it started. So whoever starts this keeps the other end of the
pipe open: the system closes it however that process dies, and nothing outlives it.

    ministack.py [LOG-FILE]
"""

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

START_SECONDS = 60
STOP_SECONDS = 5
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None)


def die_with_parent():
    """In the child, before it becomes MiniStack: SIGKILL to this script takes MiniStack along."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(port, scratch, log):
    # MiniStack hands its own environment on to functions, which must see no more than Lambda would give them: no
    # setting of a real account, of a test run or of another emulator.
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment |= {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "LAMBDA_EXECUTOR": "local",
        # Both would take a fixed port, on every interface.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "PERSIST_STATE": "0",
        "STATE_DIR": os.path.join(scratch, "state"),
        "TMPDIR": scratch,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "ministack"],
        env=environment,
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # Its functions join its process group, so that they can be ended together.
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def wait_until_ready(server, url):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"MiniStack ended while starting, with status {server.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/_ministack/health", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"MiniStack did not answer within {START_SECONDS} s")


def wait_for_the_end(server):
    """Returns when standard input has ended; nobody writes to it."""
    while server.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], 1)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            return
    raise SystemExit(f"MiniStack ended by itself, with status {server.returncode}")


def signal_group(server, number):
    try:
        os.killpg(server.pid, number)
    except ProcessLookupError:
        pass


def stop(server):
    signal_group(server, signal.SIGTERM)
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    signal_group(server, signal.SIGKILL)
    # This process has inherited what MiniStack left: wait until all of it is gone.
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def main(log_path=os.devnull):
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    port = free_port()
    scratch = tempfile.mkdtemp(prefix="ministack-")
    with open(log_path, "ab") as log:
        server = start(port, scratch, log)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(server, url)
            print(f"ready {url}", flush=True)
            wait_for_the_end(server)
        except KeyboardInterrupt:
            pass
        finally:
            stop(server)
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
