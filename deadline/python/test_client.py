# SPDX-License-Identifier: Apache-2.0
"""Uses the client against a running agent, whose socket is in WEIR_DEADLINE_SOCKET. go test ./agent/agentd runs it."""

import socket
import weir_deadline

client = weir_deadline.Client()
kept = client.declare_flow(("10.0.0.1", 1), ("10.1.0.1", 80), within=0.3, size=8000000, value=2)
other = client.declare_flow(("::ffff:10.0.0.1", 2), ("10.1.0.1", 80), within=1)
listed = client.list()["deadlines"]
assert [d["id"] for d in listed] == [kept, other], listed
assert listed[1]["source"] == "10.0.0.1:2", listed
client.delete(other)


def refused(reason, call, *args, **named):
    try:
        call(*args, **named)
    except weir_deadline.Refused as e:
        assert e.reason == reason and str(e), e.reason
        return
    raise AssertionError("not refused: " + reason)


refused("unknown", client.delete, other)
refused("malformed", client.declare_flow, ("10.0.0.1", 1), ("10.1.0.1", 80), within=-1)
# A connected socket: its addresses are not those of the VM.
server = socket.create_server(("127.0.0.1", 0))
connected = socket.create_connection(server.getsockname())
refused("source", client.declare, connected, within=1, size=10)
assert client.list()["refused"] == {"unknown": 1, "malformed": 1, "source": 1}
client.close()
assert len(client.list()["deadlines"]) == 1  # a new connection
print("ok")
