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


def parsed(data):
    """Whether a whole IPv4 or IPv6 header begins the frame, where, and the last byte that the parser needs."""
    at = 12
    while data[at:at + 2] in (b"\x81\x00", b"\x88\xa8") and at < 24:
        at += 4
    kind, ip = {b"\x08\x00": 4, b"\x86\xdd": 6}.get(data[at:at + 2] if at < 24 else b""), at + 2
    size = 20 if kind == 4 else 40
    if at == 24 or not kind:
        return 0, 0, min(at, 20) + 1
    if len(data) >= ip + 4 and (data[ip] >> 4 != kind or kind == 4 and data[ip] % 16 < 5):
        return 0, 0, ip + 3
    if len(data) < ip + size:
        return 0, 0, len(data) - 1
    plain = data[ip + 6] & 0x3F == 0 and data[ip + 7] == 0
    tcp = data[ip + 9] == 6 and plain if kind == 4 else data[ip + 6] == 6
    return kind, ip, ip + (data[ip] % 16 * 4 if kind == 4 else 40) + 19 if tcp else ip + size - 1


@only("parser")
async def finds_headers(dut):
    r, model = rng(), Model()
    await start(dut, beat=0, data=0, keep=0, last=0, user=0)
    frames = [*kinds(r), *kinds(r)]
    for n in lengths():
        data = tcp_frame(r, max(0, n - 54), tags=n % 3, v6=n % 5 == 0, ip_options=n % 2)
        frames.append((f"cut to {n}", data[:n].ljust(n, b"x")))
    found, wanted, cycle = [], [], 0
    for i, (_, data) in enumerate(frames):
        enough = min(parsed(data)[2], len(data) - 1) // LANES  # the transfer that ends the search
        for at in range(0, len(data), LANES):
            while r.random() < 0.2:
                dut.beat.value, dut.data.value, dut.keep.value = 0, r.randrange(1 << WIDTH), r.randrange(1 << LANES)
                dut.last.value, dut.user.value = r.randrange(2), r.randrange(64)
                cycle = await clock(dut, found, cycle)
            offer(dut, r, data, at, i % 64)
            if at // LANES == enough:
                wanted.append(cycle + 7)
            cycle = await clock(dut, found, cycle)
    dut.beat.value = 0
    for _ in range(10):
        cycle = await clock(dut, found, cycle)
    assert len(found) == len(frames), "one result for each frame"
    for i, ((name, data), got, when) in enumerate(zip(frames, found, wanted, strict=True)):
        assert got["found_user"] == i % 64
        check(name, data, got, model)
        assert got["cycle"] == when, f"{name}: found {got['cycle'] - when} cycles late"
    await starts_anew(dut, r, model)


def offer(dut, r, data, at, user):
    part = data[at:at + LANES]
    dut.beat.value, dut.last.value, dut.user.value = 1, at + LANES >= len(data), user
    dut.data.value = int.from_bytes(part + r.randbytes(LANES - len(part)), "little")
    dut.keep.value = (1 << len(part)) - 1


async def clock(dut, found, cycle):
    await FallingEdge(dut.clk)
    await collect(dut, found, cycle + 1)
    return cycle + 1


def check(name, data, got, model):
    _, seen = model.frame(data, 0, 1, 0)
    tcp = bool(seen & 4)
    kind, ip, _ = parsed(data)
    assert (got["ip4"], got["ip6"], got["tcp"]) == (kind == 4, kind == 6, tcp), name
    if kind:
        assert got["l3"] == (ip + 2) // 4, name
        assert got["ip_word"] == int.from_bytes(data[ip:ip + 2], "big"), name
    if kind == 4:
        assert got["ip_check"] == int.from_bytes(data[ip + 10:ip + 12], "big"), name
    if tcp:
        at = ip + (data[ip] % 16 * 4 if kind == 4 else 40)
        assert got["l4"] == (at + 2) // 4, name
        assert got["tcp_word"] == int.from_bytes(data[at + 12:at + 14], "big"), name
        assert got["window"] == int.from_bytes(data[at + 14:at + 16], "big"), name
        assert got["check"] == int.from_bytes(data[at + 16:at + 18], "big"), name
        assert got["payload"] == seen >> 8, name


async def starts_anew(dut, r, model):
    """A reset in a frame: nothing more comes of it, and the next transfer begins a frame."""
    for passed in range(12):
        found, data, cycle = [], tcp_frame(r, 200, tags=passed % 3), 0
        for at in range(0, passed * LANES, LANES):
            if at < len(data):
                offer(dut, r, data, at, 1)
                cycle = await clock(dut, found, cycle)
        dut.beat.value, dut.rst.value = 0, 1
        await FallingEdge(dut.clk)
        dut.rst.value = 0
        found.clear()
        for _ in range(10):
            cycle = await clock(dut, found, cycle)
        assert not found
        data = tcp_frame(r, 3)
        for at in range(0, len(data), LANES):
            offer(dut, r, data, at, 2)
            cycle = await clock(dut, found, cycle)
        dut.beat.value = 0
        for _ in range(10):
            cycle = await clock(dut, found, cycle)
        assert len(found) == 1
        check("after a reset", data, found[0], model)


async def collect(dut, found, cycle):
    await settle()
    if int(dut.found.value):
        names = ("found_user", "ip4", "ip6", "tcp", "l3", "l4", "ip_word", "ip_check", "tcp_word", "window", "check", "payload")
        found.append({"cycle": cycle, **{n: int(getattr(dut, n).value) for n in names}})


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
    # A reset in a frame: nothing of it comes out later, and the next transfer begins a frame.
    for passed in range(1, 6):
        dut.beat_valid.value, dut.edit_valid.value, dut.beat_last.value, dut.edit_enable.value, dut.m_ready.value = 1, 1, 0, 0, passed % 2
        for _ in range(passed):
            await FallingEdge(dut.clk)
        dut.rst.value, dut.beat_valid.value = 1, 0
        await FallingEdge(dut.clk)
        dut.rst.value, dut.m_ready.value = 0, 1
        for _ in range(4):
            await settle()
            assert not int(dut.m_valid.value)
            await FallingEdge(dut.clk)
        dut.beat_valid.value, dut.beat_last.value, dut.edit_enable.value, dut.edit_at.value, dut.edit_word.value = 1, 1, 1, 1, 0x1234
        dut.beat_data.value = 0
        await FallingEdge(dut.clk)
        dut.beat_valid.value = 0
        while not int(dut.m_valid.value):
            await FallingEdge(dut.clk)
        assert int(dut.m_data.value) == 0x3412 << 16
        await FallingEdge(dut.clk)
