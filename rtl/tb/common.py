# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Streams with idle cycles and back-pressure, frames, and the C model, for the tests of the modules."""
import ctypes
import os
import random
import struct

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

PARAMETER_BITS = {4: 4, 8: 16, 12: 6, 16: 4, 20: 4, 24: 16, 28: 30, 32: 14, 36: 16}  # address: bits of the register

SEED = int(os.environ.get("WEIR_SEED", "23"))


def rng():
    return random.Random(SEED)


async def start(dut, reset="rst", **inputs):
    """Starts the clock, and resets the module if it has a reset."""
    for name, value in inputs.items():
        getattr(dut, name).value = value
    if "MUTANT" in os.environ:  # tb/mutate.py
        dut.mutsel.value = int(os.environ["MUTANT"])
    cocotb.start_soon(Clock(dut.clk, 2, unit="ns").start())
    if hasattr(dut, reset):
        getattr(dut, reset).value = 1
    for _ in range(4):
        await FallingEdge(dut.clk)
    if hasattr(dut, reset):
        getattr(dut, reset).value = 0
    await FallingEdge(dut.clk)


async def settle():
    """Lets combinational outputs follow inputs that were set at the falling edge."""
    await Timer(100, unit="ps")


class Model:
    """tb/fairswitch_model.c."""

    def __init__(self):
        self.c = ctypes.CDLL(os.environ["MODEL"])

    def frame(self, data, window, over, clear):
        buffer = ctypes.create_string_buffer(bytes(data), len(data))
        seen = self.c.model_frame(buffer, len(data), window, over, clear)
        return buffer.raw, seen


def fold(total):
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum(data):
    data = bytes(data) + b"\0" * (len(data) % 2)
    return 0xFFFF & ~fold(sum(struct.unpack(f"!{len(data) // 2}H", data)))


def tcp_frame(r, payload, tags=0, v6=False, ip_options=0, tcp_options=0, flags=0x10, window=65535, reserved=0, ecn=0,
              fragment=0, protocol=6):
    """A frame with right checksums."""
    ether = r.randbytes(12) + b"".join(r.choice([b"\x81\x00", b"\x88\xa8"]) + r.randbytes(2) for _ in range(tags))
    tcp = bytearray(r.randbytes(12) + bytes([(5 + tcp_options) << 4 | reserved, flags]) + struct.pack("!HHH", window, 0, 0) +
                    r.randbytes(4 * tcp_options + payload))
    if v6:
        ip = bytearray(struct.pack("!IHBB", 0x60000000 | ecn << 20 | r.randrange(1 << 20), len(tcp), protocol, 64) +
                       r.randbytes(32))
        pseudo = ip[8:40]
        ether += b"\x86\xdd"
    else:
        ip = bytearray(struct.pack("!BBHHHBBH", 0x45 + ip_options, ecn, 20 + 4 * ip_options + len(tcp), r.randrange(65536),
                                   fragment, 64, protocol, 0) + r.randbytes(8 + 4 * ip_options))
        struct.pack_into("!H", ip, 10, checksum(ip))
        pseudo = ip[12:20]
        ether += b"\x08\x00"
    struct.pack_into("!H", tcp, 16, checksum(pseudo + struct.pack("!HH", protocol, len(tcp)) + tcp))
    return ether + bytes(ip) + bytes(tcp)


def kinds(r):
    """A frame of each kind that the parser distinguishes."""
    yield "plain", tcp_frame(r, 100)
    for tags in (1, 2, 3):
        yield f"{tags} VLAN tags", tcp_frame(r, 10, tags=tags)
    for n in (1, 5, 10):
        yield f"{n} words of IPv4 options", tcp_frame(r, 6, ip_options=n, ecn=1)
        yield f"{n} words of TCP options", tcp_frame(r, 0, tcp_options=n, ecn=2)
    yield "all options and tags", tcp_frame(r, 1, tags=2, ip_options=10, tcp_options=10, reserved=7, ecn=2)
    yield "IPv6", tcp_frame(r, 20, v6=True, ecn=1, reserved=3)
    yield "IPv6, tagged", tcp_frame(r, 0, v6=True, tags=2, ecn=2)
    yield "IPv6, another next header", tcp_frame(r, 20, v6=True, protocol=0, ecn=2)
    yield "UDP", tcp_frame(r, 20, protocol=17, ecn=1)
    for fragment in (0x2000, 0x0001, 0x1FFF, 0x4000):
        yield f"fragment field {fragment:04x}", tcp_frame(r, 20, fragment=fragment, ecn=2)
    for flags in range(64):
        yield f"flags {flags:02x}", tcp_frame(r, 0, flags=flags)
    for reserved in range(16):
        yield f"reserved {reserved}", tcp_frame(r, 2, reserved=reserved, flags=0x10)
        yield f"reserved {reserved} in a SYN-ACK", tcp_frame(r, 0, reserved=reserved, flags=0x12)
    for window in (0, 1, 2, 1461, 65534, 65535):
        yield f"window {window}", tcp_frame(r, 0, window=window)
    bad = bytearray(tcp_frame(r, 30, ecn=1))
    bad[24] ^= 0x55
    bad[50] ^= 0xAA
    yield "wrong checksums", bytes(bad)
    for offset in (0, 4, 6, 15):
        bad = bytearray(tcp_frame(r, 8))
        bad[46] = offset << 4
        yield f"data offset {offset}", bytes(bad)
    for total in (0, 19, 20, 39, 40, 65535):
        bad = bytearray(tcp_frame(r, 8, ecn=2))
        struct.pack_into("!H", bad, 16, total)
        yield f"total length {total}", bytes(bad)
    for version in (0x44, 0x55, 0x65, 0x40):
        bad = bytearray(tcp_frame(r, 8, ecn=2))
        bad[14] = version
        yield f"version and length {version:02x}", bytes(bad)
    yield "ARP", r.randbytes(12) + b"\x08\x06" + r.randbytes(46)


def lengths():
    return [*range(1, 128), 512, 1500, 9000]


class Stream:
    """An AXI4-Stream source and sink. idle, busy: the share of cycles in which they pause. Now and then the sink pauses for so long that
    all FIFOs fill. each: called in each cycle, when the outputs are stable."""

    def __init__(self, dut, r, lanes, idle, busy, each=None):
        self.dut, self.r, self.lanes, self.idle, self.busy, self.each = dut, r, lanes, idle, busy, each
        self.blocked = 0  # more cycles of the long pause
        self.sent, self.got = [], []  # (bytes, user)
        self.held = None  # a transfer at the output that was not taken: it must not change

    def beats(self, frames):
        for data, user in frames:
            for at in range(0, len(data), self.lanes):
                part = data[at:at + self.lanes]
                noise = self.r.randbytes(self.lanes - len(part))
                yield (int.from_bytes(part + noise, "little"), (1 << len(part)) - 1, at + self.lanes >= len(data), user)

    async def run(self, frames, limit=200_000):
        """Sends the frames and returns what came out: as many frames."""
        dut, current, part, wanted = self.dut, None, b"", len(frames)
        beats = self.beats(frames)
        for _ in range(limit):
            await FallingEdge(dut.clk)
            if current is None and self.r.random() >= self.idle:
                current = next(beats, None)
            dut.s_axis_tvalid.value = current is not None
            if current:
                dut.s_axis_tdata.value, dut.s_axis_tkeep.value, dut.s_axis_tlast.value, dut.s_axis_tuser.value = current
            self.blocked = self.blocked - 1 if self.blocked else 100 * (self.r.random() < 0.003)
            dut.m_axis_tready.value = not self.blocked and self.r.random() >= self.busy
            await settle()
            if self.each:
                self.each()
            if current and int(dut.s_axis_tready.value):
                current = None
            if int(dut.m_axis_tvalid.value):
                keep, last = int(dut.m_axis_tkeep.value), int(dut.m_axis_tlast.value)
                beat = (int(dut.m_axis_tdata.value), keep, last, int(dut.m_axis_tuser.value))
                assert self.held is None or beat == self.held, "a beat changed while it waited"
                self.held = beat
                if int(dut.m_axis_tready.value):
                    self.held = None
                    part += beat[0].to_bytes(self.lanes, "little")[:keep.bit_count()]
                    if last:
                        self.got.append((part, beat[3]))
                        part = b""
                        if len(self.got) == wanted:
                            dut.s_axis_tvalid.value = 0
                            return self.got
            else:
                assert self.held is None, "a beat was withdrawn"
        raise AssertionError(f"{len(self.got)} of {wanted} frames came out")
