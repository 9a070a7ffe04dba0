"""Measures what a cold start of the built functions takes: time from the start of the process to its first poll of the
Runtime API, and the most memory that it has had by then.

    cold_start.py BOOTSTRAP ...

Prints the median of 20 starts of each, after two that warm the page cache. Memory beyond the limit is an error; time is
only shown beside its limit, for a machine that is busy with something else takes longer.
"""

import os
import pathlib
import select
import socket
import statistics
import subprocess
import sys
import time

STARTS = 20
WARM_UP = 2
BOUND_SECONDS = 20
LIMIT_MILLISECONDS = 25
LIMIT_MEGABYTES = 24

# What Lambda sets, and the least that the functions want. Nothing is there to be reached, and nothing need be: a start
# waits for no connection.
ENVIRONMENT = {
    "AWS_LAMBDA_FUNCTION_NAME": "cold-start",
    "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
    "AWS_LAMBDA_LOG_GROUP_NAME": "none",
    "AWS_LAMBDA_LOG_STREAM_NAME": "none",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "OUTBOX_TABLE_NAME": "outbox",
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
}


def peak_kilobytes(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise SystemExit(f"/proc/{process.pid}/status tells nothing of memory")


def start(bootstrap):
    """One start: seconds until the poll, and kilobytes."""
    with socket.create_server(("127.0.0.1", 0)) as runtime_api:
        environment = ENVIRONMENT | {"AWS_LAMBDA_RUNTIME_API": "127.0.0.1:%d" % runtime_api.getsockname()[1]}
        began = time.perf_counter()
        process = subprocess.Popen(
            [bootstrap], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            if not select.select([runtime_api], [], [], BOUND_SECONDS)[0]:
                raise SystemExit(f"{bootstrap} did not come to the Runtime API within {BOUND_SECONDS} s")
            connection, _ = runtime_api.accept()
            with connection:
                request = connection.recv(4096)
                took = time.perf_counter() - began
                if b"/runtime/invocation/next" not in request.split(b"\r\n", 1)[0]:
                    raise SystemExit(f"{bootstrap} asked for something else first: {request[:80]!r}")
                return took, peak_kilobytes(process)
        finally:
            process.kill()
            process.wait()


def main(bootstraps):
    too_large = False
    for bootstrap in bootstraps:
        for _ in range(WARM_UP):
            start(bootstrap)
        times, sizes = zip(*(start(bootstrap) for _ in range(STARTS)))
        milliseconds, megabytes = statistics.median(times) * 1000, max(sizes) / 1024
        print(
            f"{pathlib.Path(bootstrap).parent.name}: first poll after {milliseconds:.1f} ms (median of {STARTS}, at most"
            f" {LIMIT_MILLISECONDS} on an idle machine), {megabytes:.1f} MB at most (limit {LIMIT_MEGABYTES})"
        )
        too_large |= megabytes > LIMIT_MEGABYTES
    if too_large:
        raise SystemExit("a start takes more memory than it may")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main([os.path.abspath(path) for path in sys.argv[1:]])
