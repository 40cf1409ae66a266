# SPDX-License-Identifier: Apache-2.0
"""Asks workers again and again, and uses the answers that are there in time.

    aggregator.py ROUNDS DEADLINE_MS BYTES HOST...      asks these workers
    aggregator.py --worker                              answers; it declares the deadline of each answer to Weir's agent, if there is one
    aggregator.py --sink                                takes data that nobody waits for
    aggregator.py --flood HOST                          sends such data without end

A request is a line "BYTES MILLISECONDS". The answer is so many bytes.
"""

import os
import selectors
import socket
import sys
import time

import weir_deadline

PORT, SINK_PORT = 9000, 9001
PAUSE = 0.25  # between two rounds, in s


def worker():
    agent = weir_deadline.Client(timeout=1) if "WEIR_DEADLINE_SOCKET" in os.environ else None
    listener = socket.create_server(("", PORT))
    connection, _ = listener.accept()
    for line in connection.makefile("rb"):
        size, milliseconds = map(int, line.split())
        if agent:
            try:
                agent.declare(connection, within=milliseconds / 1000, size=size)
            except (OSError, weir_deadline.Refused) as error:
                print("not declared:", error, file=sys.stderr)  # the answer is sent as without a deadline
        connection.sendall(bytes(size))


def sink():
    listener, readers = socket.create_server(("", SINK_PORT)), selectors.DefaultSelector()
    readers.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in readers.select():
            if key.fileobj is listener:
                readers.register(listener.accept()[0], selectors.EVENT_READ)
            elif not key.fileobj.recv(1 << 20):
                readers.unregister(key.fileobj)


def flood(host):
    connection = connect(host, SINK_PORT)
    try:
        while True:
            connection.sendall(bytes(1 << 16))
    except ConnectionError:  # the sink has ended
        pass


def connect(host, port):
    until = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((host, port), timeout=5)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def ask(workers, size, deadline):
    """Ask all workers once. Return for each answer the seconds until it was complete."""
    began, missing, took = time.monotonic(), {}, []
    with selectors.DefaultSelector() as readers:
        for connection in workers:
            connection.sendall(b"%d %d\n" % (size, deadline))
            missing[connection] = size
            readers.register(connection, selectors.EVENT_READ)
        while missing:
            for key, _ in readers.select():
                missing[key.fileobj] -= len(key.fileobj.recv(1 << 16))
                if missing[key.fileobj] <= 0:
                    del missing[key.fileobj]
                    readers.unregister(key.fileobj)
                    took.append(time.monotonic() - began)
    return took


def aggregator(rounds, deadline, size, hosts):
    workers = [connect(host, PORT) for host in hosts]
    everything, used = [], []
    for _ in range(rounds):
        took = ask(workers, size, deadline)
        used.append(sum(t <= deadline / 1000 for t in took))
        everything += took
        time.sleep(PAUSE)
    everything.sort()

    def at(share):
        return 1000 * everything[min(int(share * len(everything)), len(everything) - 1)]

    print("answers in time: %.1f of %d, at least %d; rounds with all of them: %d of %d; answers: p50 %.1f ms, p99 %.1f ms, the last %.1f ms" % (
        sum(used) / rounds, len(hosts), min(used), sum(n == len(hosts) for n in used), rounds, at(0.5), at(0.99), at(1)))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments == ["--worker"]:
        worker()
    elif arguments == ["--sink"]:
        sink()
    elif arguments[:1] == ["--flood"]:
        flood(arguments[1])
    else:
        aggregator(int(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3:])
