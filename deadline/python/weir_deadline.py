# SPDX-License-Identifier: Apache-2.0
"""Declares to Weir's agent on this host when a message must have arrived. It needs the standard library only.

    import socket, weir_deadline
    s = socket.create_connection(("10.0.0.9", 80))
    weir_deadline.Client().declare(s, within=0.3, size=len(message))
    s.sendall(message)
"""

import http.client
import json
import os
import socket

DEFAULT_SOCKET = "/run/weir-deadlines/deadline.sock"
METADATA_ADDRESS = "http://169.254.169.253"


class Refused(Exception):
    """The agent refused. reason is one word, such as rate, live, demand or source."""

    def __init__(self, status, reason, text):
        super().__init__(text)
        self.status, self.reason = status, reason


class _Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("weir", timeout=timeout)
        self._path = path

    def connect(self):
        if self._path.startswith("http://"):
            host = http.client.HTTPConnection(self._path[7:].rstrip("/"))  # parses it
            self.sock = socket.create_connection((host.host, host.port), self.timeout)
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _end(address):
    host, port = address[0], address[1]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return "[%s]:%d" % (host, port) if ":" in host else "%s:%d" % (host, port)


class Client:
    """A client of the agent that listens on the Unix socket path, or at an address http://HOST[:PORT].

    Without a path it takes that of WEIR_DEADLINE_SOCKET, or DEFAULT_SOCKET, or METADATA_ADDRESS if there is no such socket. It is not for
    several threads at once.
    """

    def __init__(self, path=None, timeout=5.0):
        self._path = path or os.environ.get("WEIR_DEADLINE_SOCKET")
        if not self._path:
            self._path = DEFAULT_SOCKET if os.path.exists(DEFAULT_SOCKET) else METADATA_ADDRESS
        self._timeout = timeout
        self._connection = None

    def declare(self, sock, within, size=None, value=None):
        """Declare that the next message of a connected TCP socket must arrive within so many seconds.

        size is the message's, in bytes. value is what it is worth if not all can be in time, 1 to 100. Returns the
        declaration's ID.
        """
        return self.declare_flow(sock.getsockname(), sock.getpeername(), within, size, value)

    def declare_flow(self, source, destination, within, size=None, value=None):
        """declare for the two ends (host, port) of a connection."""
        body = {"source": _end(source), "destination": _end(destination), "within_ms": within * 1000.0}
        if size:
            body["bytes"] = int(size)
        if value:
            body["value"] = int(value)
        return self._ask("POST", "", body)["id"]

    def delete(self, declaration):
        """Take the declaration with this ID back."""
        self._ask("DELETE", "/%d" % declaration)

    def list(self):
        """Return the deadlines that are ahead, and counts of refusals by reason."""
        return self._ask("GET", "")

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        for last in (False, True):
            fresh = self._connection is None
            if fresh:
                self._connection = _Connection(self._path, self._timeout)
            try:
                self._connection.request(method, "/v1/deadlines" + path, text)
                answer = self._connection.getresponse()
                break
            except (http.client.RemoteDisconnected, ConnectionError):
                self.close()  # the agent closed an idle connection, or was restarted
                if fresh or last:
                    raise
        got = answer.read()
        if answer.status >= 400:
            try:
                said = json.loads(got)
            except ValueError:
                said = {}
            raise Refused(answer.status, said.get("reason", "failed"), said.get("error", "the agent answered %d" % answer.status))
        return json.loads(got) if got else None
