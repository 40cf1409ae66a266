"""The same law under os-ken, for the comparison of bench: osken.py ASKED. Prints the port that it listens at.

A packet-in gives one flow-mod, as a learning switch makes it. Of each switch ASKED requests for the statistics of all
ports are out at once; the law keeps the bytes that each port sent, and acts where a port shows errors.
"""
import resource
import socket
import sys

from os_ken.base import app_manager
from os_ken.cfg import CONF
from os_ken.controller import ofp_event
from os_ken.controller.handler import MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3

ASKED = int(sys.argv[1])


class Law(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.sent = {}

    def forward(self, datapath, in_port, destination, out_port):
        parser, proto = datapath.ofproto_parser, datapath.ofproto
        match = parser.OFPMatch(in_port=in_port, eth_dst=destination)
        actions = [parser.OFPActionOutput(out_port)]
        apply = [parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, actions)]
        datapath.send_msg(parser.OFPFlowMod(datapath=datapath, priority=1, match=match, instructions=apply))

    def ask(self, datapath):
        datapath.send_msg(datapath.ofproto_parser.OFPPortStatsRequest(datapath, 0, datapath.ofproto.OFPP_ANY))

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def up(self, ev):
        for _ in range(ASKED):
            self.ask(ev.datapath)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, ev):
        msg = ev.msg
        self.forward(msg.datapath, msg.match["in_port"], msg.data[0:6].hex(":"), msg.data[5])

    @set_ev_cls(ofp_event.EventOFPPortStatsReply, MAIN_DISPATCHER)
    def port_stats(self, ev):
        datapath = ev.msg.datapath
        sent = self.sent.setdefault(datapath.id, {})
        for port in ev.msg.body:
            sent[port.port_no] = port.tx_bytes
            if port.rx_errors:
                self.forward(datapath, port.port_no, "02:00:00:00:00:01", 1)
        self.ask(datapath)


_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
CONF([], project="os_ken")
CONF.set_override("ofp_listen_host", "127.0.0.1")
CONF.set_override("ofp_tcp_listen_port", PORT)
print(PORT, flush=True)
sys.modules["osken"] = sys.modules["__main__"]
app_manager.AppManager.run_apps(["osken", "os_ken.controller.ofp_handler"])
