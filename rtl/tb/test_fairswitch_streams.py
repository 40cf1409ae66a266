# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The parser and the rewriting, each alone."""
import os

import cocotb
from cocotb.triggers import FallingEdge

from common import Model, kinds, lengths, rng, settle, start, tcp_frame

WIDTH = int(os.environ.get("WIDTH", "64"))
LANES = WIDTH // 8


def only(module):
    return cocotb.test(skip=os.environ["TOP"] != "fairswitch_" + module)


def where(data):
    """Where the headers begin, from the bytes: EtherType, IP, TCP; in quads."""
    at = 12
    for _ in range(2):
        if data[at:at + 2] in (b"\x81\x00", b"\x88\xa8"):
            at += 4
    ip = at + 2
    return (ip + 2) // 4, (ip + (data[ip] % 16 * 4 if data[at:at + 2] == b"\x08\x00" else 40) + 2) // 4


@only("parser")
async def finds_headers(dut):
    r, model = rng(), Model()
    await start(dut, beat=0, data=0, keep=0, last=0, user=0)
    frames = [*kinds(r), *kinds(r)]
    for n in lengths():
        data = tcp_frame(r, max(0, n - 54), tags=n % 3, v6=n % 5 == 0, ip_options=n % 2)
        frames.append((f"cut to {n}", data[:n].ljust(n, b"x")))
    found, beats = [], []
    for i, (_, data) in enumerate(frames):
        for at in range(0, len(data), LANES):
            part = data[at:at + LANES]
            beats.append((int.from_bytes(part + r.randbytes(LANES - len(part)), "little"), (1 << len(part)) - 1,
                          at + LANES >= len(data), i % 64))
    for beat in beats + [None] * 10:
        while beat and r.random() < 0.2:
            dut.beat.value = 0
            await FallingEdge(dut.clk)
            await collect(dut, found)
        dut.beat.value = beat is not None
        if beat:
            dut.data.value, dut.keep.value, dut.last.value, dut.user.value = beat
        await FallingEdge(dut.clk)
        await collect(dut, found)
    assert len(found) == len(frames), "one result for each frame"
    for i, ((name, data), got) in enumerate(zip(frames, found, strict=True)):
        out, seen = model.frame(data, 0, 1, 0)
        marked, tcp = bool(seen & 8), bool(seen & 4)
        assert got["found_user"] == i % 64
        assert got["tcp"] == tcp, name
        if marked:
            assert got["ip4"] or got["ip6"], name
        if tcp:
            l3, l4 = where(data)
            at = 4 * l4 - 2
            assert (got["l3"], got["l4"]) == (l3, l4), name
            assert got["tcp_word"] == int.from_bytes(data[at + 12:at + 14], "big"), name
            assert got["window"] == int.from_bytes(data[at + 14:at + 16], "big"), name
            assert got["check"] == int.from_bytes(data[at + 16:at + 18], "big"), name
            assert got["payload"] == seen >> 8, name
            assert got["ip_word"] == int.from_bytes(data[4 * l3 - 2:4 * l3], "big"), name


async def collect(dut, found):
    await settle()
    if int(dut.found.value):
        names = ("found_user", "ip4", "ip6", "tcp", "l3", "l4", "ip_word", "ip_check", "tcp_word", "window", "check", "payload")
        found.append({n: int(getattr(dut, n).value) for n in names})


@only("rewrite")
async def writes_words(dut):
    r = rng()
    await start(dut, beat_valid=0, edit_valid=0, m_ready=0)
    for idle, busy in ((0, 0), (0.5, 0), (0, 0.5), (0.4, 0.6)):
        frames = [(r.randbytes(n), r.randrange(32), [r.randrange(64) for _ in range(5)], [r.randrange(65536) for _ in range(5)],
                   r.randrange(64)) for n in [*range(1, 128), 512, 1500]]
        for f in frames:  # edits of one frame never write the same word
            f[2][:] = r.sample(range(64), 5)
        queue = [(f, at) for f in frames for at in range(0, len(f[0]), LANES)]
        got, part, offered = [], b"", False
        while len(got) < len(frames):
            offered = queue and (offered or r.random() >= idle)
            dut.beat_valid.value = dut.edit_valid.value = bool(offered)
            if offered:
                (data, enable, at_words, words, user), at = queue[0]
                piece = data[at:at + LANES]
                dut.beat_data.value = int.from_bytes(piece.ljust(LANES, b"\0"), "little")
                dut.beat_keep.value, dut.beat_last.value = (1 << len(piece)) - 1, at + LANES >= len(data)
                dut.beat_user.value, dut.edit_enable.value = user, enable
                dut.edit_at.value = sum(k << 6 * i for i, k in enumerate(at_words))
                dut.edit_word.value = sum(w << 16 * i for i, w in enumerate(words))
            dut.m_ready.value = r.random() >= busy
            await settle()
            if int(dut.m_valid.value) and int(dut.m_ready.value):
                part += int(dut.m_data.value).to_bytes(LANES, "little")[:int(dut.m_keep.value).bit_count()]
                if int(dut.m_last.value):
                    got.append((part, int(dut.m_user.value)))
                    part = b""
            if offered:
                assert int(dut.edit_pop.value) == (int(dut.beat_pop.value) and int(dut.beat_last.value))
                if int(dut.beat_pop.value):
                    queue.pop(0)
                    offered = False
            await FallingEdge(dut.clk)
        dut.beat_valid.value = 0
        for (data, enable, at_words, words, user), (out, out_user) in zip(frames, got, strict=True):
            want = bytearray(data)
            for i in range(5):
                for b in range(2):
                    at = 2 * at_words[i] + b
                    if enable >> i & 1 and at < len(want):
                        want[at] = words[i] >> 8 * (1 - b) & 255
            assert (out, out_user) == (bytes(want), user), f"{len(data)} bytes"
