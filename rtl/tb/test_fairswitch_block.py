# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The whole block, and the path of its frames: each kind of frame, each length, against the C model."""
import os

import cocotb
from cocotb.triggers import FallingEdge

from common import Model, Stream, kinds, lengths, rng, settle, start, tcp_frame

WIDTH = int(os.environ.get("WIDTH", "64"))
PAUSES = [(0, 0), (0.5, 0), (0, 0.5), (0.4, 0.6)]


def only(module):
    return cocotb.test(skip=os.environ["TOP"] != "fairswitch_" + module if module else os.environ["TOP"] != "fairswitch")


async def compare(dut, frames, window, over, clear, model, r, pauses):
    dut.window.value, dut.over.value, dut.clear.value = window, over, clear
    stream = Stream(dut, r, WIDTH // 8, *pauses)
    sent = [(data, r.randrange(64)) for _, data in frames]
    got = await stream.run(sent)
    for (name, data), (_, user), (out, out_user) in zip(frames, sent, got, strict=True):
        want, _ = model.frame(data, window, over, clear)
        assert out == want, f"{name} ({len(data)} bytes): differs at {[i for i in range(len(want)) if out[i:i+1] != want[i:i+1]]}"
        assert out_user == user, name


@only("frames")
async def every_kind(dut):
    r, model = rng(), Model()
    await start(dut, s_axis_tvalid=0, m_axis_tready=0, window=0, over=0, clear=0)
    for i, window in enumerate((0, 1, 1461, 40000, 1 << 20, (1 << 30) - 1)):
        for over in (0, 1):
            await compare(dut, list(kinds(r)), window, over, (i + over) % 3, model, r, PAUSES[(i + 2 * over) % 4])


@only("frames")
async def every_length(dut):
    r, model = rng(), Model()
    await start(dut, s_axis_tvalid=0, m_axis_tready=0, window=0, over=0, clear=0)
    for pauses in PAUSES:
        frames = []
        for n in lengths():
            data = tcp_frame(r, max(0, n - 54), ecn=1, reserved=5, tags=n % 3, ip_options=n % 2)
            frames.append((f"cut to {n}", data[:n] if len(data) > n else data + r.randbytes(n - len(data))))
        await compare(dut, frames, 3000, 1, 1, model, r, pauses)


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
        got, sent, could = [], 0, False
        for _ in range(200000):
            wr = could and sent < len(words) and r.random() >= idle
            if wr:
                dut.in_ctrl.value, dut.in_data.value = words[sent]
                sent += 1
            dut.in_wr.value, dut.out_rdy.value = wr, r.random() >= busy
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
