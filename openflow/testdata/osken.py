"""os-ken's reading and writing of OpenFlow 1.3, one message a line, for osken_test.go; the peers beside it use it too.

osken.py read: a message in hexadecimal -> its fields as JSON, by the specification's names, numbers as they are.
osken.py write: such fields -> the message in hexadecimal.
A line that os-ken cannot do gives {"error": ...}.
"""
import json
import logging
import signal
import sys

from os_ken.lib.stringify import StringifyMixin
from os_ken.ofproto import ofproto_parser, ofproto_protocol, ofproto_v1_3, ofproto_v1_3_parser as p

logging.disable(logging.CRITICAL)
DATAPATH = ofproto_protocol.ProtocolDesc(version=ofproto_v1_3.OFP_VERSION)
# Attributes that os-ken keeps in addition to a message's fields, or computes from them.
BESIDE = {"datapath", "version", "msg_type", "msg_len", "xid", "buf", "len", "length", "field"}
# os-ken's names where they are not the specification's.
NAMES = {"mpls_ttl": "ttl", "nw_ttl": "ttl", "table_ids": "next_table_ids", "max_band": "max_bands"}
TEXT = {"name", "mfr_desc", "hw_desc", "sw_desc", "serial_num", "dp_desc"}


def field(name, value):
    return [name, *value] if isinstance(value, tuple) else [name, value, None]


def fields(o):
    if isinstance(o, p.OFPMatch):
        return [field(k, v) for k, v in o._fields2]
    if isinstance(o, p.OFPActionSetField):
        return {"type": o.type, "field": field(o.key, o.value)}
    if isinstance(o, p.OFPHello):
        return {"versions": [v for e in o.elements for v in e.versions]}
    if isinstance(o, p.OFPOxmId):
        return [o.type, bool(o.hasmask), o.length]
    if isinstance(o, p.OFPQueuePropExperimenter):
        return {"property": o.property, "experimenter": o.experimenter, "data": bytes(o.data).hex()}
    if isinstance(o, p.OFPTableFeaturePropExperimenter):
        data = b"".join(d.to_bytes(4, "big") for d in o.data)
        return {"type": o.type, "experimenter": o.experimenter, "exp_type": o.exp_type, "data": data.hex()}
    if isinstance(o, (bytes, bytearray)):
        return o.hex()
    if hasattr(o, "_asdict"):
        named = o._asdict()
    elif isinstance(o, StringifyMixin):
        named = vars(o)
    elif isinstance(o, (list, tuple)):
        return [fields(v) for v in o]
    else:
        return o
    out = {}
    for k, v in named.items():
        if k in BESIDE or k.startswith("_") or v is None:
            continue
        if k in TEXT and isinstance(v, bytes):
            v = v.split(b"\0")[0].decode("latin-1")
        out[NAMES.get(k, k)] = fields(v)
    if isinstance(o, p.OFPMultipartReply):
        out["more"] = bool(out.pop("flags") & 1)
        if o.type == ofproto_v1_3.OFPMP_METER_FEATURES:  # one structure, which os-ken makes a list
            out["body"] = out["body"][0]
    return out


def read(line):
    return read_bytes(bytes.fromhex(line))


def read_bytes(b):
    version, typ, length, xid = ofproto_parser.header(b)
    return fields(p.msg_parser(DATAPATH, version, typ, length, xid, b))


def match(list_):
    return p.OFPMatch(**{k: v if mask is None else (v, mask) for k, v, mask in list_})


def action(a):
    a = dict(a)
    typ = a.pop("type")
    if typ == ofproto_v1_3.OFPAT_SET_FIELD:
        name, value, _ = a["field"]
        return p.OFPActionSetField(**{name: value})
    if typ == ofproto_v1_3.OFPAT_EXPERIMENTER:
        return p.OFPActionExperimenterUnknown(a["experimenter"], bytes.fromhex(a["data"]))
    a = {{15: "mpls_ttl", 23: "nw_ttl"}[typ] if k == "ttl" else k: v for k, v in a.items()}
    return p.OFPAction._ACTION_TYPES[typ](**a)


def instruction(i):
    i = dict(i)
    typ = i.pop("type")
    if "actions" in i:
        return p.OFPInstructionActions(typ, [action(a) for a in i["actions"]])
    if typ == ofproto_v1_3.OFPIT_CLEAR_ACTIONS:
        return p.OFPInstructionActions(typ, [])
    return p.OFPInstruction._INSTRUCTION_TYPES[typ](**i)


def band(b):
    b = dict(b)
    b.pop("data", None)
    return p.OFPMeterBandHeader._METER_BAND[b.pop("type")](**b)


def bucket(b):
    return p.OFPBucket(b["weight"], b["watch_port"], b["watch_group"], [action(a) for a in b["actions"]])


def table_property(t):
    t = {"table_ids" if k == "next_table_ids" else k: v for k, v in t.items()}
    typ = t.pop("type")
    if typ >= ofproto_v1_3.OFPTFPT_EXPERIMENTER:
        data = bytes.fromhex(t["data"])
        words = [int.from_bytes(data[i:i + 4], "big") for i in range(0, len(data), 4)]
        return p.OFPTableFeaturePropExperimenter(typ, None, t["experimenter"], t["exp_type"], words)
    ids = {"instruction_ids": lambda i: p.OFPInstructionId(i["type"]), "action_ids": lambda i: p.OFPActionId(i["type"]),
           "table_ids": lambda i: i, "oxm_ids": lambda i: OxmID(*i)}
    return p.OFPTableFeatureProp._TYPES[typ](type_=typ, **{k: [ids[k](i) for i in v] for k, v in t.items()})


class OxmID(p.OFPOxmId):
    """With the field's length, in the place of which os-ken itself writes 0."""

    def serialize(self):
        length = self.length
        b = super().serialize()
        b[-1] = length
        return b


def table_feature(t):
    t = dict(t, name=t["name"].encode(), properties=[table_property(v) for v in t["properties"]])
    return p.OFPTableFeaturesStats(**t)


MESSAGES = {
    1: p.OFPErrorMsg, 2: p.OFPEchoRequest, 3: p.OFPEchoReply, 4: p.OFPExperimenter, 5: p.OFPFeaturesRequest, 7: p.OFPGetConfigRequest,
    9: p.OFPSetConfig, 13: p.OFPPacketOut, 14: p.OFPFlowMod, 15: p.OFPGroupMod, 16: p.OFPPortMod, 17: p.OFPTableMod,
    20: p.OFPBarrierRequest, 22: p.OFPQueueGetConfigRequest, 24: p.OFPRoleRequest, 26: p.OFPGetAsyncRequest,
    28: p.OFPSetAsync, 29: p.OFPMeterMod,
}
REQUESTS = {
    0: p.OFPDescStatsRequest, 1: p.OFPFlowStatsRequest, 2: p.OFPAggregateStatsRequest, 3: p.OFPTableStatsRequest,
    4: p.OFPPortStatsRequest, 5: p.OFPQueueStatsRequest, 6: p.OFPGroupStatsRequest, 7: p.OFPGroupDescStatsRequest,
    8: p.OFPGroupFeaturesStatsRequest, 9: p.OFPMeterStatsRequest, 10: p.OFPMeterConfigStatsRequest,
    11: p.OFPMeterFeaturesStatsRequest, 12: p.OFPTableFeaturesStatsRequest, 13: p.OFPPortDescStatsRequest,
    0xffff: p.OFPExperimenterStatsRequest,
}
PARTS = {
    "match": match,
    "actions": lambda v: [action(a) for a in v],
    "instructions": lambda v: [instruction(i) for i in v],
    "buckets": lambda v: [bucket(b) for b in v],
    "bands": lambda v: [band(b) for b in v],
    "data": bytes.fromhex,
}


def build(asked):
    """os-ken's message of what a controller, or either side, may say."""
    args = asked["fields"]
    if asked["type"] == 0:
        m = p.OFPHello(DATAPATH, [p.OFPHelloElemVersionBitmap(args["versions"])])
    elif asked["type"] == 18:
        body = args.get("body") or {}
        if isinstance(body, list):
            body = {"body": [table_feature(t) for t in body]}
        body = {k: PARTS.get(k, lambda v: v)(v) for k, v in body.items()}
        m = REQUESTS[args["type"]](DATAPATH, flags=int(args["more"]), **body)
    else:
        args = {"type_" if k == "type" else k: PARTS.get(k, lambda v: v)(v) for k, v in args.items()}
        if asked["type"] == ofproto_v1_3.OFPT_PACKET_OUT:
            args["data"] = args["data"] or None  # no frame beside a buffer
        m = MESSAGES[asked["type"]](DATAPATH, **args)
    m.xid = asked["xid"]
    return m


def write(line):
    m = build(json.loads(line))
    m.serialize()
    return bytes(m.buf).hex()


def late(*_):
    raise TimeoutError("os-ken reads for ever")


def main():
    signal.signal(signal.SIGALRM, late)
    do = {"read": read, "write": write}[sys.argv[1]]
    for line in sys.stdin:
        signal.alarm(10)
        try:
            print(json.dumps(do(line)))
        except Exception as e:  # whatever it is, it is this message's
            print(json.dumps({"error": repr(e)}))


if __name__ == "__main__":
    main()
