# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The whole block, and the path of its frames: each kind of frame, each length, against the C model."""
import os

import cocotb
from cocotb.triggers import FallingEdge

from common import PARAMETER_BITS, Model, Stream, kinds, lengths, rng, settle, start, tcp_frame

WIDTH = int(os.environ.get("WIDTH", "64"))
PAUSES = [(0, 0), (0.5, 0), (0, 0.5), (0.4, 0.6)]


def only(module):
    return cocotb.test(skip=os.environ["TOP"] != "fairswitch_" + module if module else os.environ["TOP"] != "fairswitch")


class Decisions:
    """What the path looks up for each frame, and what it tells the law and the counts: each in its cycle."""

    def __init__(self, dut, r, model, clear, sent):
        self.dut, self.r, self.model, self.clear = dut, r, model, clear
        self.coming, self.wanted = list(sent), []
        self.windows, self.over = [0] * 8, 0
        self.cycle, self.event, self.counts = 0, None, []  # counts: (cycle, marked, rewritten)

    def each(self):
        dut = self.dut
        self.cycle += 1
        event = int(dut.opens.value) | int(dut.closes.value) << 1 | int(dut.aborts.value) << 2
        if self.event is None:
            assert event == 0 and int(dut.payload.value) == 0
        else:
            seen, user = self.event
            assert event == (0, 1, 2, 4)[seen & 3]
            assert int(dut.payload.value) == seen >> 8
            assert int(dut.event_out.value) << 3 | int(dut.event_in.value) == user
            self.event = None
        marked = rewritten = 0
        if self.counts and self.counts[0][0] == self.cycle:
            _, marked, rewritten = self.counts.pop(0)
        assert (int(dut.marked.value), int(dut.rewritten.value)) == (marked, rewritten)
        if int(dut.decided.value):
            data, user = self.coming.pop(0)
            assert int(dut.lookup_out.value) << 3 | int(dut.lookup_in.value) == user
            if self.r.random() < 0.3:
                self.windows[self.r.randrange(8)] = self.r.choice([0, 1, 1461, 40000, (1 << 30) - 1, self.r.randrange(1 << 30)])
                self.over = self.r.randrange(256)
            window, over = self.windows[user & 7], self.over >> (user >> 3) & 1
            dut.window.value, dut.over.value = window, over
            want, seen = self.model.frame(data, window, over, self.clear)
            self.wanted.append(want)
            assert int(dut.is_tcp.value) == seen >> 2 & 1
            self.event = seen, user
            self.counts.append((self.cycle + 9, seen >> 3 & 1, seen >> 4 & 1))
        else:  # nothing is looked up
            dut.window.value, dut.over.value = self.r.randrange(1 << 30), self.r.randrange(2)


async def compare(dut, frames, clear, model, r, pauses):
    dut.clear.value = clear
    sent = [(data, r.randrange(64)) for _, data in frames]
    decisions = Decisions(dut, r, model, clear, sent)
    stream = Stream(dut, r, WIDTH // 8, *pauses, decisions.each)
    got = await stream.run(sent)
    for (name, data), (_, user), want, (out, out_user) in zip(frames, sent, decisions.wanted, got, strict=True):
        assert out == want, f"{name} ({len(data)} bytes): differs at {[i for i in range(len(want)) if out[i:i+1] != want[i:i+1]]}"
        assert out_user == user, name
    for _ in range(10):  # counts of the last frame
        await FallingEdge(dut.clk)


async def again(dut, r):
    """A reset while frames are inside: none comes out."""
    dut.s_axis_tvalid.value, dut.s_axis_tlast.value, dut.m_axis_tready.value = 1, 0, 1
    for i in range(r.randrange(1, 30)):
        dut.s_axis_tdata.value = r.randrange(1 << WIDTH)
        dut.s_axis_tkeep.value = (1 << WIDTH // 8) - 1
        dut.s_axis_tlast.value = i % 3 == 1
        await FallingEdge(dut.clk)
    dut.s_axis_tvalid.value, dut.rst.value = 0, 1
    for _ in range(r.randrange(1, 10)):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    for _ in range(30):
        await settle()
        assert not int(dut.m_axis_tvalid.value) and not int(dut.decided.value)
        assert not any(int(getattr(dut, n).value) for n in ("opens", "closes", "aborts", "payload", "marked", "rewritten"))
        await FallingEdge(dut.clk)


@only("frames")
async def every_kind(dut):
    r, model = rng(), Model()
    await start(dut, s_axis_tvalid=0, m_axis_tready=0, window=0, over=0, clear=0)
    for i in range(12):
        await compare(dut, list(kinds(r)), i % 3, model, r, PAUSES[i % 4])
        await again(dut, r)


@only("frames")
async def every_length(dut):
    r, model = rng(), Model()
    await start(dut, s_axis_tvalid=0, m_axis_tready=0, window=0, over=0, clear=0)
    for pauses in PAUSES:
        frames = []
        for n in lengths():
            data = tcp_frame(r, max(0, n - 54), ecn=1, reserved=5, tags=n % 3, ip_options=n % 2)
            frames.append((f"cut to {n}", data[:n] if len(data) > n else data + r.randbytes(n - len(data))))
        await compare(dut, frames, 1, model, r, pauses)


@only("")
async def limits_a_flow(dut):
    """A SYN-ACK counts a flow at both queues; the next ACK into the queue has its window, and a FIN ends it."""
    r = rng()
    quiet = {f"s_axil_{n}": 0 for n in ("awaddr", "awvalid", "wdata", "wvalid", "bready", "araddr", "arvalid", "rready")}
    await start(dut, s_axis_tvalid=0, m_axis_tready=0, q_words=0, q_maxwords=sum(16384 << 18 * q for q in range(8)), **quiet)
    stream = Stream(dut, r, WIDTH // 8, 0.2, 0.2)

    async def one(flags, to, come, **more):
        stream.got = []
        data = tcp_frame(r, 0, flags=flags, **more)
        (out, _), = await stream.run([(data, to << 3 | come)])
        for _ in range(100):
            await FallingEdge(dut.clk)
        return data, int.from_bytes(out[48:50], "big")

    target = (16384 >> 2) * 8
    assert (await one(0x10, 1, 2))[1] == 65535, "no flow, so no window is granted"
    await one(0x12, 1, 2)
    assert (await one(0x10, 1, 2))[1] == target
    assert (await one(0x10, 2, 1))[1] == target
    assert (await one(0x10, 1, 3))[1] == 65535, "the queue of port 3 has no flows"
    await one(0x12, 1, 2)
    assert (await one(0x10, 5, 2, reserved=3))[1] == target // 2 // 8
    await one(0x11, 2, 7)
    assert (await one(0x10, 5, 2))[1] == target
    assert (await one(0x10, 5, 1))[1] == target // 2
    await one(0x14, 2, 1)
    assert (await one(0x10, 5, 2))[1] == 65535
    assert (await one(0x10, 5, 1))[1] == target


@only("netfpga")
async def carries_netfpga_frames(dut):
    """Module headers and frames leave in order and unchanged, with every length and pauses on both sides."""
    r = rng()
    quiet = {f"s_axil_{n}": 0 for n in ("awaddr", "awvalid", "wdata", "wvalid", "bready", "araddr", "arvalid", "rready")}
    await start(dut, reset="reset", in_wr=0, in_data=0, in_ctrl=0, out_rdy=0, q_words=0, q_maxwords=0, **quiet)
    for idle, busy in PAUSES:
        words = []
        for n in [*range(1, 128), 512, 1500]:
            data = tcp_frame(r, max(0, n - 54))[:n]
            for k in range(r.randrange(3)):  # more module headers
                words.append((r.randrange(1, 255), r.randrange(1 << 64)))
            words.append((0xFF, 1 << 48 + r.randrange(8) | (n + 7) // 8 << 32 | r.randrange(8) << 16 | n))
            for at in range(0, n, 8):
                part = data[at:at + 8]
                words.append((0 if at + 8 < n else 0x80 >> len(part) - 1, int.from_bytes(part.ljust(8, b"\0"), "big")))
        got, sent, could, blocked = [], 0, False, 0
        for _ in range(200000):
            wr = could and sent < len(words) and r.random() >= idle
            if wr:
                dut.in_ctrl.value, dut.in_data.value = words[sent]
                sent += 1
            blocked = blocked - 1 if blocked else 150 * (r.random() < 0.003)  # all FIFOs fill
            dut.in_wr.value, dut.out_rdy.value = wr, not blocked and r.random() >= busy
            await settle()
            could = int(dut.in_rdy.value)
            if int(dut.out_wr.value):
                got.append((int(dut.out_ctrl.value), int(dut.out_data.value)))
            if len(got) == len(words):
                break
            await FallingEdge(dut.clk)
        assert len(got) == len(words), f"{len(got)} of {len(words)} words"
        for i, (want, have) in enumerate(zip(words, got, strict=True)):
            mask = (1 << 64) - 1
            if want[0] in (1 << b for b in range(8)) and want != have:  # the last word: bytes behind its end are free
                mask &= ~((want[0] << 0) and (1 << 8 * (want[0].bit_length() - 1)) - 1)
            assert (want[0], want[1] & mask) == (have[0], have[1] & mask), f"word {i}"
        dut.in_wr.value = 0
        await FallingEdge(dut.clk)

    # A reset while words and frames are inside: none comes out.
    dut.out_rdy.value, dut.in_wr.value = 0, 1
    for word in words[:14]:
        dut.in_ctrl.value, dut.in_data.value = word
        await FallingEdge(dut.clk)
    dut.reset.value, dut.in_wr.value = 1, 0
    for _ in range(12):
        await FallingEdge(dut.clk)
    dut.reset.value, dut.out_rdy.value = 0, 1
    for _ in range(40):
        await settle()
        assert int(dut.in_rdy.value) and not int(dut.out_wr.value)
        await FallingEdge(dut.clk)


class NetFPGA:
    """Words in, and the registers, of fairswitch_netfpga. Its output is always taken."""

    def __init__(self, dut):
        self.dut = dut

    async def start(self):
        quiet = {f"s_axil_{n}": 0 for n in ("awaddr", "awvalid", "wdata", "wvalid", "bready", "araddr", "arvalid", "rready")}
        await start(self.dut, reset="reset", in_wr=0, in_data=0, in_ctrl=0, out_rdy=1, q_words=0, q_maxwords=0, **quiet)

    async def word(self, ctrl, data):
        dut = self.dut
        dut.in_ctrl.value, dut.in_data.value, dut.in_wr.value = ctrl, data, 1
        await FallingEdge(dut.clk)
        dut.in_wr.value = 0
        while not int(dut.in_rdy.value):
            await FallingEdge(dut.clk)

    async def bytes(self, data):
        for at in range(0, len(data), 8):
            part = data[at:at + 8]
            await self.word(0 if at + 8 < len(data) else 0x80 >> len(part) - 1, int.from_bytes(part.ljust(8, b"\0"), "big"))

    async def read(self, address):
        dut = self.dut
        dut.s_axil_araddr.value, dut.s_axil_arvalid.value = address, 1
        await settle()
        assert int(dut.s_axil_arready.value)
        await FallingEdge(dut.clk)
        dut.s_axil_arvalid.value = 0
        while not int(dut.s_axil_rvalid.value):
            assert not int(dut.s_axil_arready.value)
            await FallingEdge(dut.clk)
        await FallingEdge(dut.clk)  # the answer waits
        assert int(dut.s_axil_rvalid.value) and int(dut.s_axil_rresp.value) == 0 and not int(dut.s_axil_arready.value)
        value = int(dut.s_axil_rdata.value)
        dut.s_axil_rready.value = 1
        await FallingEdge(dut.clk)
        dut.s_axil_rready.value = 0
        return value

    async def write(self, address, value):
        dut = self.dut
        dut.s_axil_awaddr.value, dut.s_axil_wdata.value = address, value
        dut.s_axil_awvalid.value = dut.s_axil_wvalid.value = 1
        await settle()
        assert int(dut.s_axil_awready.value) and int(dut.s_axil_wready.value)
        await FallingEdge(dut.clk)
        dut.s_axil_awvalid.value = dut.s_axil_wvalid.value = 0
        await FallingEdge(dut.clk)  # the answer waits
        assert int(dut.s_axil_bvalid.value) and int(dut.s_axil_bresp.value) == 0
        assert not int(dut.s_axil_awready.value) and not int(dut.s_axil_wready.value)
        dut.s_axil_bready.value = 1
        await FallingEdge(dut.clk)
        dut.s_axil_bready.value = 0
        assert not int(dut.s_axil_bvalid.value)


def of_queues(values):
    """The value of each queue, 18 bits, in one port."""
    return sum(value << 18 * q for q, value in enumerate(values))


@only("netfpga")
async def counts_at_ports(dut):
    """The module header says which queues a segment concerns: the lowest port that it leaves by, and the port that it came in by. Other
    module headers do not."""
    r, block = rng(), NetFPGA(dut)
    await block.start()

    async def other_header():
        await block.word(r.choice([r.randrange(1, 255), 0xFF ^ 1 << r.randrange(8)]), r.randrange(1 << 64))

    flows, total = [0] * 8, 1 << 14
    for i in range(48):
        come, leave = r.randrange(8), i % 8
        ports = (r.randrange(256) << leave + 1 | 1 << leave) & 0xFF
        data = tcp_frame(r, 0, flags=0x12)
        await other_header()
        await block.word(0xFF, ports << 48 | r.randrange(1 << 16) << 32 | (r.randrange(1 << 13) << 3 | come) << 16 | len(data))
        await other_header()
        await block.bytes(data)
        flows[come] += 1
        flows[leave] += 1
    for _ in range(60):
        await FallingEdge(dut.clk)
    assert [await block.read(0x400 + 0x20 * q) for q in range(8)] == flows
    assert await block.read(0x2C) == 48
    # The size of a queue reaches the law.
    dut.q_maxwords.value = of_queues([total] * 8)
    await block.write(0x10, 3)
    await block.word(0xFF, 1 << 48 | 1 << 16)
    await block.bytes(tcp_frame(r, 0, flags=0x12))
    for _ in range(200):
        await FallingEdge(dut.clk)
    assert await block.read(0x404) == max(1461, (total >> 3) * 8 // (flows[0] + 1))


@only("netfpga")
async def has_registers(dut):
    """Each bit of each parameter is written and read; other addresses have none."""
    r, block = rng(), NetFPGA(dut)
    await block.start()
    for _ in range(6):
        values = {address: r.randrange(1 << bits) for address, bits in PARAMETER_BITS.items()}
        for address, value in values.items():
            await block.write(address, value)
            await block.write(address | 1 << r.randrange(6, 12), ~value & 0xFFFFFFFF)
        for address, value in values.items():
            assert await block.read(address) == value
            assert await block.read(address | 1 << r.choice([6, 7, 8, 9, 11])) == 0


@only("netfpga")
async def marks_by_queue(dut):
    """Each queue's words and size, in all their bits, decide whether ECT becomes CE in a frame that leaves through it."""
    r, block = rng(), NetFPGA(dut)
    await block.start()
    await block.write(4, 8)  # ECN_mark only
    await block.write(0x14, 0)  # the threshold is the size
    data, marks = tcp_frame(r, 0, ecn=2), 0
    for _ in range(40):
        words, over = [r.randrange(1, 1 << 18) for _ in range(8)], [r.randrange(2) for _ in range(8)]
        dut.q_words.value = of_queues(words)
        dut.q_maxwords.value = of_queues(w - o for w, o in zip(words, over, strict=True))
        for _ in range(12):  # a queue in each cycle
            await FallingEdge(dut.clk)
        for q in range(8):
            await block.word(0xFF, 1 << 48 + q)
            await block.bytes(data)
        for _ in range(40):
            await FallingEdge(dut.clk)
        marks += sum(over)
        assert await block.read(0x30) == marks
