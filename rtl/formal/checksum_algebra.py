# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Proves for all 16-bit words that equation 3 of RFC 1624 keeps a right checksum right, and finds that the printed formula does not.
The module equals equation 3: formal/fairswitch_checksum.svh. There an addition with end-around carry is fold(a + b)."""
import sys

import z3

M = 65535
solver = z3.Solver()
solver.set("timeout", 120_000)


def word(name):
    w = z3.Int(name)
    solver.add(w >= 0, w <= M)
    return w


def fold(total):
    """The sum with its carries added again: 1 to 65535, or 0 for 0."""
    q, r = z3.FreshInt("q"), z3.FreshInt("r")
    solver.add(q >= 0, total == M * q + r, r >= 0, r <= M, z3.Implies(total > 0, r > 0))
    return r


def holds(name, claim):
    solver.push()
    solver.add(z3.Not(claim))
    answer = solver.check()
    text = {"unsat": "proved", "sat": f"wrong: {solver.model() if answer == z3.sat else ''}"}.get(str(answer), str(answer))
    solver.pop()
    print(f"{name}: {text if len(text) < 200 else text[:60] + ' ...'}")
    return answer == z3.unsat


rest, old, new = word("rest"), word("old"), word("new")
solver.add(rest > 0)  # the pseudo header has the protocol, so the sum of the other words is not 0
check = M - fold(rest + old)
after = M - fold(fold((M - check) + (M - old)) + new)
ok = holds("a right checksum stays right", fold(rest + new + after) == M)
ok &= holds("it is what the sender would have written", after == M - fold(rest + new))
printed = fold(check + new + (M - old))  # CSum + Rwnd_new - Rwnd_old
ok &= not holds("the printed formula (FQ-15)", fold(rest + new + printed) == M)
sys.exit(0 if ok else 1)
