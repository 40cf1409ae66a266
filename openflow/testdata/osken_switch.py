"""A switch made of os-ken's parsers, classes and structure formats, which as a whole has none.

osken_switch.py dial PORT | listen [CA CERTIFICATE KEY]: one connection at 127.0.0.1; with files, TLS with certificates on
both sides. Lines of JSON on stdout say what happens: the port that is listened at, each message that came (os-ken's
reading of it, where os-ken can read it), each that was sent (its bytes, and os-ken's reading of them). Lines on stdin
say what to do: "send" a message, or "write" as os-ken's controller would write it. The end of stdin ends it.
"""
import json
import os
import select
import socket
import ssl
import struct
import sys

from os_ken.lib import addrconv
from os_ken.ofproto import ofproto_v1_3 as o, ofproto_v1_3_parser as p

import osken

# The types that os-ken has a parser for. Of other messages only the header is read.
READS = set(p._MSG_PARSERS)


def say(**line):
    print(json.dumps(line), flush=True)


def parts(list_):
    """Writes match, instructions, buckets or bands one behind the other."""
    b = bytearray()
    for part in list_:
        part.serialize(b, len(b))
    return bytes(b)


def port(d):
    return struct.pack(o.OFP_PORT_PACK_STR, d["port_no"], addrconv.mac.text_to_bin(d["hw_addr"]), d["name"].encode(),
                       d["config"], d["state"], d["curr"], d["advertised"], d["supported"], d["peer"], d["curr_speed"],
                       d["max_speed"])


def queue_property(q):
    if q["property"] == o.OFPQT_EXPERIMENTER:
        body = struct.pack(o.OFP_QUEUE_PROP_EXPERIMENTER_PACK_STR, q["experimenter"]) + bytes.fromhex(q["data"])
    else:
        body = struct.pack(o.OFP_QUEUE_PROP_MIN_RATE_PACK_STR, q["rate"])
    size = o.OFP_QUEUE_PROP_HEADER_SIZE + len(body)
    return struct.pack(o.OFP_QUEUE_PROP_HEADER_PACK_STR, q["property"], size) + body


def queue(q):
    body = b"".join(queue_property(v) for v in q["properties"])
    return struct.pack(o.OFP_PACKET_QUEUE_PACK_STR, q["queue_id"], q["port"], o.OFP_PACKET_QUEUE_SIZE + len(body)) + body


def flow_stats(f):
    body = parts([osken.match(f["match"])]) + parts(osken.instruction(i) for i in f["instructions"])
    return struct.pack(o.OFP_FLOW_STATS_0_PACK_STR, o.OFP_FLOW_STATS_0_SIZE + len(body), f["table_id"], f["duration_sec"],
                       f["duration_nsec"], f["priority"], f["idle_timeout"], f["hard_timeout"], f["flags"], f["cookie"],
                       f["packet_count"], f["byte_count"]) + body


def group_stats(g):
    body = b"".join(struct.pack(o.OFP_BUCKET_COUNTER_PACK_STR, b["packet_count"], b["byte_count"]) for b in g["bucket_stats"])
    return struct.pack(o.OFP_GROUP_STATS_PACK_STR, o.OFP_GROUP_STATS_SIZE + len(body), g["group_id"], g["ref_count"],
                       g["packet_count"], g["byte_count"], g["duration_sec"], g["duration_nsec"]) + body


def group_desc(g):
    body = parts(osken.bucket(b) for b in g["buckets"])
    return struct.pack(o.OFP_GROUP_DESC_PACK_STR, o.OFP_GROUP_DESC_SIZE + len(body), g["type"], g["group_id"]) + body


def group_features(g):
    return struct.pack(o.OFP_GROUP_FEATURES_PACK_STR, g["types"], g["capabilities"], *g["max_groups"], *g["actions"])


def meter_stats(m):
    body = b"".join(struct.pack(o.OFP_METER_BAND_STATS_PACK_STR, b["packet_band_count"], b["byte_band_count"])
                    for b in m["band_stats"])
    return struct.pack(o.OFP_METER_STATS_PACK_STR, m["meter_id"], o.OFP_METER_STATS_SIZE + len(body), m["flow_count"],
                       m["packet_in_count"], m["byte_in_count"], m["duration_sec"], m["duration_nsec"]) + body


def meter_config(m):
    body = parts(osken.band(b) for b in m["bands"])
    return struct.pack(o.OFP_METER_CONFIG_PACK_STR, o.OFP_METER_CONFIG_SIZE + len(body), m["flags"], m["meter_id"]) + body


def in_order(pack, *names):
    """A structure whose fields are packed in this order; text becomes bytes."""
    def write(d):
        return struct.pack(pack, *(d[n].encode() if isinstance(d[n], str) else d[n] for n in names))
    return write


BODIES = {
    o.OFPMP_DESC: in_order(o.OFP_DESC_PACK_STR, "mfr_desc", "hw_desc", "sw_desc", "serial_num", "dp_desc"),
    o.OFPMP_FLOW: flow_stats,
    o.OFPMP_AGGREGATE: in_order(o.OFP_AGGREGATE_STATS_REPLY_PACK_STR, "packet_count", "byte_count", "flow_count"),
    o.OFPMP_TABLE: in_order(o.OFP_TABLE_STATS_PACK_STR, "table_id", "active_count", "lookup_count", "matched_count"),
    o.OFPMP_PORT_STATS: in_order(o.OFP_PORT_STATS_PACK_STR, *p.OFPPortStats._fields),
    o.OFPMP_QUEUE: in_order(o.OFP_QUEUE_STATS_PACK_STR, *p.OFPQueueStats._fields),
    o.OFPMP_GROUP: group_stats,
    o.OFPMP_GROUP_DESC: group_desc,
    o.OFPMP_GROUP_FEATURES: group_features,
    o.OFPMP_METER: meter_stats,
    o.OFPMP_METER_CONFIG: meter_config,
    o.OFPMP_METER_FEATURES: in_order(o.OFP_METER_FEATURES_PACK_STR, "max_meter", "band_types", "capabilities", "max_bands", "max_color"),
    o.OFPMP_TABLE_FEATURES: lambda t: osken.table_feature(t).serialize(),
    o.OFPMP_PORT_DESC: port,
    o.OFPMP_EXPERIMENTER: lambda e: p.OFPExperimenterMultipart(e["experimenter"], e["exp_type"], bytes.fromhex(e["data"])).serialize(),
}


def hello(f):
    words = sum(1 << v for v in f["versions"])  # all below 32
    return struct.pack(o.OFP_HELLO_ELEM_VERSIONBITMAP_HEADER_PACK_STR, o.OFPHET_VERSIONBITMAP, 8) + struct.pack("!I", words)


def packet_in(f):
    head = struct.pack(o.OFP_PACKET_IN_PACK_STR, f["buffer_id"], f["total_len"], f["reason"], f["table_id"], f["cookie"])
    return head + parts([osken.match(f["match"])]) + bytes(2) + bytes.fromhex(f["data"])


def flow_removed(f):
    head = struct.pack(o.OFP_FLOW_REMOVED_PACK_STR0, f["cookie"], f["priority"], f["reason"], f["table_id"], f["duration_sec"],
                       f["duration_nsec"], f["idle_timeout"], f["hard_timeout"], f["packet_count"], f["byte_count"])
    return head + parts([osken.match(f["match"])])


def multipart(f):
    body = f["body"] if isinstance(f["body"], list) else [f["body"]]
    head = struct.pack(o.OFP_MULTIPART_REPLY_PACK_STR, f["type"], int(f["more"]))
    return head + b"".join(bytes(BODIES[f["type"]](b)) for b in body)


def queues(f):
    return struct.pack(o.OFP_QUEUE_GET_CONFIG_REPLY_PACK_STR, f["port"]) + b"".join(queue(q) for q in f["queues"])


def asynchronous(f):
    return struct.pack(o.OFP_ASYNC_CONFIG_PACK_STR, *f["packet_in_mask"], *f["port_status_mask"], *f["flow_removed_mask"])


# The types that os-ken has a reader for, and no writer.
WRITES = {
    o.OFPT_HELLO: hello,
    o.OFPT_FEATURES_REPLY: lambda f: struct.pack(o.OFP_SWITCH_FEATURES_PACK_STR, f["datapath_id"], f["n_buffers"],
                                                 f["n_tables"], f["auxiliary_id"], f["capabilities"], 0),
    o.OFPT_GET_CONFIG_REPLY: in_order(o.OFP_SWITCH_CONFIG_PACK_STR, "flags", "miss_send_len"),
    o.OFPT_PACKET_IN: packet_in,
    o.OFPT_FLOW_REMOVED: flow_removed,
    o.OFPT_PORT_STATUS: lambda f: struct.pack("!B7x", f["reason"]) + port(f["desc"]),
    o.OFPT_MULTIPART_REPLY: multipart,
    o.OFPT_BARRIER_REPLY: lambda f: b"",
    o.OFPT_QUEUE_GET_CONFIG_REPLY: queues,
    o.OFPT_ROLE_REPLY: in_order(o.OFP_ROLE_REQUEST_PACK_STR, "role", "generation_id"),
    o.OFPT_GET_ASYNC_REPLY: asynchronous,
}


def message(asked):
    if asked["type"] not in WRITES:
        return bytes.fromhex(osken.write(json.dumps(asked)))
    body = WRITES[asked["type"]](asked["fields"])
    return struct.pack(o.OFP_HEADER_PACK_STR, o.OFP_VERSION, asked["type"], o.OFP_HEADER_SIZE + len(body), asked["xid"]) + body


class Switch:
    """One thread for both directions: what TLS holds is not for two."""

    def __init__(self, connection):
        self.connection = connection
        self.buffer = b""

    def receive(self):
        """Takes what has come, and says whether more may come."""
        self.connection.settimeout(0)
        try:
            while True:
                b = self.connection.recv(1 << 16)
                if not b:
                    return False
                self.buffer += b
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:  # the other side went away in its own manner
            return False
        finally:
            self.connection.settimeout(None)
            self.tell()

    def tell(self):
        while len(self.buffer) >= o.OFP_HEADER_SIZE:
            _, typ, length, xid = struct.unpack_from(o.OFP_HEADER_PACK_STR, self.buffer)
            if len(self.buffer) < length:
                return
            b, self.buffer = self.buffer[:length], self.buffer[length:]
            say(event="got", type=typ, xid=xid, hex=b.hex(), fields=osken.read_bytes(b) if typ in READS else None)

    def obey(self, line):
        asked = json.loads(line)
        if asked["do"] == "write":
            say(event="wrote", hex=osken.write(line))
            return
        b = message(asked)
        self.connection.sendall(b)
        say(event="sent", hex=b.hex(), fields=osken.read_bytes(b))

    def serve(self):
        lines = b""
        while True:
            ready, _, _ = select.select([0, self.connection], [], [])
            if self.connection in ready and not self.receive():
                say(event="gone")
                return
            if 0 in ready:
                b = os.read(0, 1 << 16)
                if not b:
                    return
                *whole, lines = (lines + b).split(b"\n")
                for line in whole:
                    self.obey(line)


def connect(way, *args):
    files = args[-3:]
    if way == "listen":
        listener = socket.create_server(("127.0.0.1", 0))
        say(event="listens", port=listener.getsockname()[1])
        connection = listener.accept()[0]
    else:
        connection = socket.create_connection(("127.0.0.1", int(args[0])))
    if len(files) < 3:
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if way == "listen" else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # certificates of tests name nobody
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files[0])
    context.load_cert_chain(files[1], files[2])
    return context.wrap_socket(connection, server_side=way == "listen")


Switch(connect(*sys.argv[1:])).serve()
