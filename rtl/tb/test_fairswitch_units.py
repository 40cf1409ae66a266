# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The small modules, each against the arithmetic that it stands for. The module under test is the top level."""
import cocotb
from cocotb.triggers import FallingEdge, Timer

from common import PARAMETER_BITS, fold, rng, settle, start

ENDS16 = [0, 1, 2, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF]


def only(module):
    """A test that runs if the top level is this module."""
    import os
    return cocotb.test(skip=os.environ["TOP"] != "fairswitch_" + module)


async def interrupt(dut, **inputs):
    """A reset ends what the module does, at once and also in the cycle in which it begins."""
    for work in (0, 1, 5, 16):
        for name, value in {**inputs, "start": 1, "rst": work == 0}.items():
            getattr(dut, name).value = value
        await FallingEdge(dut.clk)
        dut.start.value = 0
        for _ in range(work - 1):
            await FallingEdge(dut.clk)
        dut.rst.value = 1
        await FallingEdge(dut.clk)
        dut.rst.value = 0
        for _ in range(20 if work == 0 else 1):
            assert not int(dut.done.value), "done after a reset"
            await FallingEdge(dut.clk)


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
        assert int(dut.quotient.value) == a // b, "the quotient does not stay"
        if r.random() < 0.1:
            await interrupt(dut, dividend=a, divisor=b)


@only("mul16")
async def multiplies(dut):
    r = rng()
    await start(dut, start=0, a=0, b=0)
    pairs = [(0xFFFF, 0xFFFF), (0, 5), (1, (1 << 18) - 1), ((1 << 14) - 1, (1 << 18) - 1)]
    pairs += [(r.randrange(1 << 14), r.randrange(1 << 18)) for _ in range(800)]
    pairs += [(r.randrange(1 << 16), r.randrange(1 << 16)) for _ in range(200)]
    for a, b in pairs:
        dut.start.value, dut.a.value, dut.b.value = 1, a, b
        await FallingEdge(dut.clk)
        dut.start.value, dut.a.value, dut.b.value = r.random() < 0.3, 3, 7  # ignored while it works
        for _ in range(16):
            assert not int(dut.done.value)
            await FallingEdge(dut.clk)
        dut.start.value = 0
        assert (int(dut.done.value), int(dut.product.value)) == (1, a * b)
        await FallingEdge(dut.clk)
        assert (int(dut.done.value), int(dut.product.value)) == (0, a * b)
        if r.random() < 0.1:
            await interrupt(dut, a=a, b=b)


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
    since, limit = 0, 5  # cycles since a sample; idle_samples
    for i in range(30000):
        if since == 2 and r.random() < 0.02:
            limit = r.choice([0, 1, 5, 5, 17])
            dut.idle_samples.value = limit
        if r.random() < 0.0005:
            dut.rst.value = 1
            await FallingEdge(dut.clk)
            dut.rst.value = 0
            flows = syns = fins = rsts = mss = idle = since = 0
            active = sampling = False
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
            if active or not limit:
                idle = 0
            else:
                idle += 1
                if idle >= limit:
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
    """Each queue in turn, 4 cycles apart, each `period`; its sum is that of its last 32 samples since the reset."""
    r, queues = rng(), 4
    await start(dut, period=40, updates=7, q_words=0, read_q=0)
    for period, updates, rounds in ((40, 7, 80), (17, 1, 40), (23, 0, 5), (60, 63, 65), (0xA5C3, 2, 3)):
        dut.rst.value, dut.period.value, dut.updates.value = 1, period, updates
        await FallingEdge(dut.clk)
        dut.rst.value = 0
        history, words, taken = [[0] * 32 for _ in range(queues)], [], 0  # words: the inputs of the cycles so far
        now, due = 0, period + 3  # the cycle of the next sample
        while taken < rounds * queues + 2:  # the reset ends a round
            if due - now > 200:  # nothing happens
                await Timer(2 * (due - now - 100), unit="ns")
                words, now = [None] * 3, due - 100
            if not words or words[-1] is None or r.random() < 0.2:
                values = [r.choice([0, (1 << 18) - 1, r.randrange(1 << 18)]) for _ in range(queues)]
                dut.q_words.value = sum(w << 18 * i for i, w in enumerate(values))
            words = [*words[-3:], values]
            q, read_q = taken % queues, r.randrange(queues)
            dut.read_q.value = read_q
            await settle()
            if taken > read_q:
                assert int(dut.read_sum.value) == sum(history[read_q][-32:])
            assert int(dut.sampling.value) == (1 << q if now == due - 1 else 0)
            assert int(dut.sampled_of.value) == (1 << q if now == due else 0)
            assert int(dut.sampled.value) == (now == due)
            if now == due:
                assert (int(dut.sample_q.value), int(dut.sample.value)) == (q, words[-4][q])
                assert int(dut.update.value) == (taken // queues % max(updates, 1) == max(updates, 1) - 1)
                history[q].append(words[-4][q])
                taken += 1
                due += period - 12 if q == queues - 1 else 4
            await FallingEdge(dut.clk)
            now += 1


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

    names = {8: "avg_queue_time", 12: "updates", 16: "threshold", 20: "ecn_threshold", 24: "floor_bytes", 28: "aggregate_max",
             32: "mss_max", 36: "idle_samples"}
    defaults = {0: 0x46535701, 4: 4, 8: 6000, 12: 10, 16: 2, 20: 2, 24: 1461, 28: 0, 32: 1460, 36: 20833}

    async def all_are(values):
        for address in range(0, 0x40, 4):
            assert await read(address) == values.get(address, 0)
        assert int(dut.ecn.value) << 3 | int(dut.enable.value) << 2 | int(dut.clear.value) == values[4]
        for address, name in names.items():
            assert int(getattr(dut, name).value) == values[address], name

    await all_are(defaults)
    for _ in range(4):
        values = dict(defaults)
        for address, width in PARAMETER_BITS.items():
            value = r.randrange(1 << 32)
            await write(address, value)
            values[address] = value & ((1 << width) - 1)
            for bit in range(6, 12):  # no register
                await write(address | 1 << bit, ~value & 0xFFFFFFFF)
        await write(0, 0)
        for address in range(40, 0x40, 4):
            await write(address, r.randrange(1 << 32))
        await all_are(values)
    for bit in (6, 7, 8, 9, 11):
        assert await read(8 | 1 << bit) == 0
    assert await read(0xC08) == 0
    # Half a write is none, and a second one waits for the first one's answer.
    dut.awaddr.value, dut.wdata.value = 8, 77
    for address_comes in (1, 0):
        dut.awvalid.value, dut.wvalid.value = address_comes, 1 - address_comes
        await settle()
        assert not int(dut.awready.value) and not int(dut.wready.value)
        await FallingEdge(dut.clk)
        assert not int(dut.bvalid.value)
    dut.awvalid.value = dut.wvalid.value = 1
    await FallingEdge(dut.clk)
    for _ in range(3):
        dut.wdata.value = 78
        await settle()
        assert int(dut.bvalid.value) and not int(dut.awready.value) and not int(dut.wready.value)
        assert int(dut.bresp.value) == 0 and int(dut.rresp.value) == 0
        await FallingEdge(dut.clk)
    dut.awvalid.value = dut.wvalid.value = 0
    dut.bready.value = 1
    await FallingEdge(dut.clk)
    dut.bready.value = 0
    values[8] = 77
    await all_are(values)
    for _ in range(3000):
        decided, tcp, marked, rewritten = (r.randrange(2) for _ in range(4))
        dut.decided.value, dut.tcp.value, dut.marked.value, dut.rewritten.value = decided, tcp, marked, rewritten
        for address, more in zip((40, 44, 48, 52), (decided, decided and tcp, marked, rewritten)):
            values[address] = values.get(address, 0) + more
        await FallingEdge(dut.clk)
    dut.decided.value = dut.marked.value = dut.rewritten.value = 0
    await all_are(values)
    shows = {0: ("show_flows", 12), 1: ("show_window", 30), 2: ("show_syns", 16), 3: ("show_fins", 16), 4: ("show_rsts", 16),
             5: ("show_mss", 14)}
    for q in [*range(8), *range(8)]:
        want = [0] * 8
        for i, (name, width) in shows.items():
            want[i] = r.randrange(1 << width)
            getattr(dut, name).value = want[i]
        for i in range(8):
            assert await read(0x400 + 0x20 * q + 4 * i) == want[i]
            assert int(dut.show_q.value) == q
    # A reset ends what is under way, and gives the first values back.
    for late in range(1, 4):
        dut.araddr.value, dut.arvalid.value = 0x400, 1
        dut.awaddr.value, dut.wdata.value, dut.awvalid.value, dut.wvalid.value = 4, 0, 1, 1
        for _ in range(late):
            await FallingEdge(dut.clk)
            dut.arvalid.value = 0
        dut.awvalid.value = dut.wvalid.value = 0
        dut.rst.value = 1
        await FallingEdge(dut.clk)
        dut.rst.value = 0
        for _ in range(5):
            assert not int(dut.rvalid.value) and not int(dut.bvalid.value)
            await FallingEdge(dut.clk)
        await all_are(defaults)
