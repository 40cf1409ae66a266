# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The small modules, each against the arithmetic that it stands for. The module under test is the top level."""
import cocotb
from cocotb.triggers import FallingEdge

from common import fold, rng, settle, start

ENDS16 = [0, 1, 2, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF]


def only(module):
    """A test that runs if the top level is this module."""
    import os
    return cocotb.test(skip=os.environ["TOP"] != "fairswitch_" + module)


@only("div32")
async def divides(dut):
    r = rng()
    await start(dut, start=0, dividend=0, divisor=1)
    ends = [0, 1, 2, 3, (1 << 18) - 1, 1 << 18, (1 << 32) - 1, 0x55555555, 0xAAAAAAAA]
    pairs = [(a, b) for a in ends for b in ends if 0 < b < 1 << 18]
    pairs += [(r.randrange(1 << r.randrange(1, 33)), r.randrange(1, 1 << r.randrange(1, 19))) for _ in range(1500)]
    for a, b in pairs:
        dut.start.value, dut.dividend.value, dut.divisor.value = 1, a, b
        await FallingEdge(dut.clk)
        dut.start.value, dut.dividend.value, dut.divisor.value = r.random() < 0.2, 7, 3  # ignored while it works
        for cycle in range(2, 19):
            assert not int(dut.done.value), f"done after {cycle - 1} cycles"
            if cycle == 18:
                dut.start.value = 0
            await FallingEdge(dut.clk)
        assert int(dut.done.value), "not done after 18 cycles"
        assert int(dut.quotient.value) == a // b, f"{a} / {b} = {int(dut.quotient.value)}"
        await FallingEdge(dut.clk)
        assert not int(dut.done.value)


@only("mul16")
async def multiplies(dut):
    r = rng()
    await start(dut, start=0, a=0, b=0)
    pairs = [(0xFFFF, 0xFFFF), (0, 5), (1, (1 << 18) - 1), ((1 << 14) - 1, (1 << 18) - 1)]
    pairs += [(r.randrange(1 << 14), r.randrange(1 << 18)) for _ in range(1000)]
    for a, b in pairs:
        dut.start.value, dut.a.value, dut.b.value = 1, a, b
        await FallingEdge(dut.clk)
        dut.start.value, dut.a.value = 0, 3
        cycles = 1
        while not int(dut.done.value):
            await FallingEdge(dut.clk)
            cycles += 1
        assert (cycles, int(dut.product.value)) == (17, a * b)
        await FallingEdge(dut.clk)


@only("checksum")
async def adapts_checksums(dut):
    r = rng()
    await start(dut, check=0, cleared=0, reserved=0, changed=0, old_word=0, new_word=0)
    waiting = []  # inputs of earlier cycles
    for _ in range(6000):
        pick = lambda: r.choice(ENDS16) if r.random() < 0.4 else r.randrange(65536)
        now = (pick(), r.randrange(2), r.randrange(16), pick(), pick(), r.randrange(2))
        dut.check.value, dut.cleared.value, dut.reserved.value, dut.old_word.value, dut.new_word.value = now[:5]
        dut.changed.value = waiting[-1][5] if waiting else 0  # a cycle later
        waiting.append(now)
        await FallingEdge(dut.clk)
        if len(waiting) == 4:
            check, cleared, reserved, old, new, changed = waiting[0]
            total = 0xFFFF & ~check
            if cleared:
                total += (0xFFFF & ~(reserved << 8))
            if changed:
                total += (0xFFFF & ~old) + new
            assert int(dut.sum.value) == 0xFFFF & ~fold(total)
            waiting.pop(0)


@only("ecn_mark")
async def marks(dut):
    r = rng()
    await start(dut, over=0, ip4=0, ip6=0, word=0, check=0)
    waiting = []  # inputs of the cycle before
    for _ in range(4000):
        over, v4 = r.randrange(2), r.randrange(2)
        v6 = 0 if v4 else r.randrange(2)
        word, check = r.randrange(65536), r.choice(ENDS16) if r.random() < 0.3 else r.randrange(65536)
        dut.over.value, dut.ip4.value, dut.ip6.value, dut.word.value, dut.check.value = over, v4, v6, word, check
        await FallingEdge(dut.clk)
        waiting.append((over, v4, v6, word, check))
        if len(waiting) < 2:
            continue
        over, v4, v6, word, check = waiting.pop(0)
        shift = 4 if v6 else 0
        mark = over and (v4 or v6) and (word >> shift & 3) in (1, 2)
        assert int(dut.mark.value) == bool(mark)
        assert int(dut.mark4.value) == bool(mark and v4)
        if mark:
            new = word | 3 << shift
            assert int(dut.new_word.value) == new
            if v4:
                assert int(dut.new_check.value) == 0xFFFF & ~fold((0xFFFF & ~check) + (0xFFFF & ~word) + new)


@only("window")
async def gives_fields(dut):
    r = rng()
    await start(dut, window=0, word=0, field=0)
    waiting, grants = [], []
    for _ in range(6000):
        now = (r.choice([0, 1, 1461, (1 << 30) - 1, r.randrange(1 << r.randrange(1, 31))]), r.randrange(65536),
               r.choice(ENDS16) if r.random() < 0.3 else r.randrange(65536))
        dut.window.value, dut.word.value, dut.field.value = now
        waiting.append(now)
        await FallingEdge(dut.clk)
        grants.append(int(dut.granted.value))
        if len(waiting) == 4:
            window, word, field = waiting.pop(0)
            shift = 0 if word & 2 else min(word >> 8 & 15, 14)
            granted = min(65535, (window + (1 << shift) - 1) >> shift)
            want = bool(window and word & 16 and granted < field)
            assert int(dut.smaller.value) == want
            assert not want or grants[-2] == granted


@only("fifo")
async def keeps_order(dut):
    r = rng()
    await start(dut, push=0, pop=0)
    dut_in = getattr(dut, "in")
    model = []
    full = 0
    for _ in range(6000):
        await settle()
        assert int(dut.valid.value) == bool(model) and int(dut.full.value) == (len(model) == 32)
        full += len(model) == 32
        if model:
            assert int(dut.out.value) == model[0]
        phase = 0.8 if full < 50 else 0.4
        push, pop = len(model) < 32 and r.random() < phase, bool(model) and r.random() < 0.5
        value = r.randrange(256)
        dut.push.value, dut.pop.value, dut_in.value = push, pop, value
        if pop:
            model.pop(0)
        if push:
            model.append(value)
        await FallingEdge(dut.clk)
    assert full


@only("skid")
async def passes_beats(dut):
    r = rng()
    await start(dut, s_valid=0, m_ready=0, s_data=0)
    for idle, busy in ((0, 0), (0.5, 0), (0, 0.5), (0.3, 0.7)):
        sent, got, value = [], [], None
        cycles = 0
        while len(got) < 500:
            if value is None and r.random() >= idle and len(sent) < 500:
                value = r.randrange(256)
            dut.s_valid.value, dut.s_data.value, dut.m_ready.value = value is not None, value or 0, r.random() >= busy
            await settle()
            if int(dut.m_valid.value) and int(dut.m_ready.value):
                got.append(int(dut.m_data.value))
            if value is not None and int(dut.s_ready.value):
                sent.append(value)
                value = None
            await FallingEdge(dut.clk)
            cycles += 1
        assert got == sent
        assert (idle, busy) != (0, 0) or cycles <= 502, "bubbles"
        dut.s_valid.value = 0


@only("delay")
async def delays(dut):
    r = rng()
    await start(dut)
    line = []
    for _ in range(200):
        value = r.randrange(256)
        getattr(dut, "in").value = value
        line.append(value)
        await FallingEdge(dut.clk)
        if len(line) >= 5:
            assert int(dut.out.value) == line[-5]


@only("counter")
async def counts(dut):
    r = rng()
    await start(dut, idle_samples=5, sampling=0, opens=0, closes=0, aborts=0, data=0, length=0)
    flows = syns = fins = rsts = mss = idle = 0
    active = sampling = False
    since = 0  # cycles since a sample
    for i in range(30000):
        kind = r.randrange(4) if i < 20000 else r.randrange(3) - 1
        n = r.choice([1, 2, 2])
        opens = n if kind in (0, 1) and i < 20000 or kind == 2 and i >= 20000 else 0
        closes, aborts = int(kind == 2 and i < 20000 and r.random() < 0.3), 0
        if kind == 0 and i >= 20000:
            opens, closes, aborts = 0, 0, n
        sampled, sampling, since = sampling, since > 2 and r.random() < 0.05, since + 1
        since = 0 if sampling else since
        data, length = r.random() < 0.05 and i < 20000 or r.random() < 0.002, r.randrange(1 << 14)
        dut.opens.value, dut.closes.value, dut.aborts.value = opens, closes, aborts
        dut.sampling.value, dut.data.value, dut.length.value = sampling, data, length
        before = flows
        if sampled:
            if active:
                idle = 0
            else:
                idle += 1
                if idle >= 5:
                    idle = flows = syns = fins = rsts = 0
            active = False
        if data:
            active, mss = True, max(mss, length)
        middle = flows
        flows = max(0, min(4095, flows + opens - closes - aborts))
        syns, fins, rsts = min(65535, syns + opens), min(65535, fins + closes), min(65535, rsts + aborts)
        await settle()
        assert int(dut.changes.value) == (middle != before or flows != middle)
        await FallingEdge(dut.clk)
        assert (int(dut.flows.value), int(dut.syns.value), int(dut.fins.value), int(dut.rsts.value), int(dut.mss.value)) == \
            (flows, syns, fins, rsts, mss), f"step {i}"


@only("avg32")
async def averages(dut):
    r = rng()
    queues = 4
    await start(dut, period=40, updates=7, q_words=0, read_q=0)
    history = [[0] * 32 for _ in range(queues)]
    words = [0] * queues
    samples = 0
    while samples < 400:
        await settle()
        if int(dut.sampled.value):
            q, value = int(dut.sample_q.value), int(dut.sample.value)
            assert value == words[q]
            assert int(dut.update.value) == ((samples // queues) % 7 == 6)
            history[q].append(value)
            samples += 1
            dut.read_q.value = q
            await FallingEdge(dut.clk)
            await settle()
            assert int(dut.read_sum.value) == sum(history[q][-32:])
            if q == queues - 1:
                words = [r.choice([0, (1 << 18) - 1, r.randrange(1 << 18)]) for _ in range(queues)]
                dut.q_words.value = sum(w << 18 * i for i, w in enumerate(words))
        await FallingEdge(dut.clk)


@only("regs")
async def keeps_registers(dut):
    names = ["arvalid", "awvalid", "wvalid", "bready", "rready", "decided", "tcp", "marked", "rewritten", "show_flows", "show_syns",
             "show_fins", "show_rsts", "show_mss", "show_window", "araddr", "awaddr", "wdata"]
    await start(dut, **{n: 0 for n in names})
    r = rng()

    async def read(address):
        dut.araddr.value, dut.arvalid.value = address, 1
        while True:
            await settle()
            if int(dut.arready.value):
                break
            await FallingEdge(dut.clk)
        await FallingEdge(dut.clk)
        dut.arvalid.value = 0
        while not int(dut.rvalid.value):
            await FallingEdge(dut.clk)
        for _ in range(r.randrange(4)):  # the answer waits
            await FallingEdge(dut.clk)
            assert int(dut.rvalid.value)
        value = int(dut.rdata.value)
        dut.rready.value = 1
        await FallingEdge(dut.clk)
        dut.rready.value = 0
        return value

    async def write(address, value):
        dut.awaddr.value, dut.wdata.value, dut.awvalid.value, dut.wvalid.value = address, value, 1, 1
        await settle()
        assert int(dut.awready.value) and int(dut.wready.value)
        await FallingEdge(dut.clk)
        dut.awvalid.value = dut.wvalid.value = 0
        assert int(dut.bvalid.value)
        dut.bready.value = 1
        await FallingEdge(dut.clk)
        dut.bready.value = 0
        assert not int(dut.bvalid.value)

    assert await read(0) == 0x46535701
    defaults = {4: 4, 8: 6000, 12: 10, 16: 2, 20: 2, 24: 1461, 28: 0, 32: 1460, 36: 20833}
    widths = {4: 4, 8: 16, 12: 6, 16: 4, 20: 4, 24: 16, 28: 30, 32: 14, 36: 16}
    for address, value in defaults.items():
        assert await read(address) == value
    written = {a: r.randrange(1 << 32) for a in widths}
    for address, value in written.items():
        await write(address, value)
    await write(0x40, 0xFFFFFFFF)  # no register
    for address, width in widths.items():
        assert await read(address) == written[address] & ((1 << width) - 1)
    dut.decided.value, dut.tcp.value, dut.marked.value, dut.rewritten.value = 1, 1, 1, 1
    await FallingEdge(dut.clk)
    dut.tcp.value = dut.marked.value = 0
    await FallingEdge(dut.clk)
    dut.decided.value = dut.rewritten.value = 0
    assert [await read(a) for a in (40, 44, 48, 52)] == [2, 1, 1, 2]
    dut.show_flows.value, dut.show_window.value, dut.show_mss.value, dut.show_syns.value = 17, 12345, 1448, 9
    for i, want in enumerate((17, 12345, 9, 0, 0, 1448)):
        assert await read(0x400 + 0x20 * 5 + 4 * i) == want
        assert int(dut.show_q.value) == 5
