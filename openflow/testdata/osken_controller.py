"""os-ken's own controller, with an application that does as it is told.

osken_controller.py listen | dial PORT [CA CERTIFICATE KEY]: it listens at 127.0.0.1, or goes to a switch there; with
files, TLS with certificates on both sides. Lines of JSON on stdout say what happens: the port, that a switch is up,
each message that os-ken gave to the application. Lines on stdin say which message to send. The end of stdin ends it.
"""
import json
import os
import select
import socket
import sys
import threading

from os_ken.base import app_manager
from os_ken.cfg import CONF
from os_ken.controller import controller, ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, HANDSHAKE_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib import hub
from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser as p

import osken

LOCK = threading.Lock()
PHASES = [HANDSHAKE_DISPATCHER, CONFIG_DISPATCHER, MAIN_DISPATCHER]
# Every event of a message that a switch sends.
EVENTS = [ofp_event.ofp_msg_to_ev_cls(c) for c in vars(p).values()
          if isinstance(c, type) and issubclass(c, p.MsgBase) and c.__name__.startswith("OFP")
          and (c.cls_msg_type in p._MSG_PARSERS) and hasattr(ofp_event, "Event" + c.__name__)]


def say(**line):
    with LOCK:
        print(json.dumps(line), flush=True)


class Told(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def up(self, ev):
        hub.spawn(self.obey, ev.datapath)
        say(event="up", datapath_id=ev.datapath.id)

    @set_ev_cls(EVENTS, PHASES)
    def got(self, ev):
        m = ev.msg
        say(event="got", type=m.msg_type, xid=m.xid, hex=bytes(m.buf).hex(), fields=osken.fields(m))

    def obey(self, datapath):
        for line in sys.stdin:
            m = osken.build(json.loads(line))
            m.datapath = datapath
            datapath.send_msg(m)
        os._exit(0)


class OneAtATime:
    """A TLS connection that one thread uses at a time.

    os-ken reads in one thread and writes in another. Python before 3.13.2 lets both into one TLS object at once, which
    OpenSSL forbids: once in ten runs, the reader then waited for ever for a message that had come.
    """

    def __init__(self, tls):
        self.tls = tls
        self.lock = threading.Lock()

    def __getattr__(self, name):
        return getattr(self.tls, name)

    def recv(self, size):
        if not self.tls.pending() and not select.select([self.tls], [], [], self.tls.gettimeout())[0]:
            raise socket.timeout
        with self.lock:
            return self.tls.recv(size)

    def sendall(self, data):
        with self.lock:
            self.tls.sendall(data)


def one_at_a_time(serve=controller.datapath_connection_factory):
    return lambda connection, address: serve(OneAtATime(connection) if hasattr(connection, "pending") else connection,
                                             address)


def announce(server, serve=hub.StreamServer.serve_forever):
    say(event="listens", port=server.server.getsockname()[1])
    serve(server)


def main(way, *args):
    files = args[-3:] if len(args) >= 3 else None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    CONF([], project="os_ken")
    CONF.set_override("ofp_listen_host", "127.0.0.1")
    CONF.set_override("ofp_ssl_listen_port" if files else "ofp_tcp_listen_port", port)
    if files:
        for name, file in zip(("ca_certs", "ctl_cert", "ctl_privkey"), files):
            CONF.set_override(name, file)
    if way == "dial":
        CONF.set_override("ofp_switch_address_list", ["127.0.0.1:" + args[0]])
    sys.modules["osken_controller"] = sys.modules["__main__"]
    hub.StreamServer.serve_forever = announce
    controller.datapath_connection_factory = one_at_a_time()
    app_manager.AppManager.run_apps(["osken_controller", "os_ken.controller.ofp_handler"])


if __name__ == "__main__":
    main(*sys.argv[1:])
