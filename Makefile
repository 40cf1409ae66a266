# All targets for people and CI. As root on Debian with Go, git and make: `make demo`, `make test`.
SHELL := /bin/bash
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GO      := go
# -vet=off: the linter runs vet. -w: no debugging data, which halves the time of linking the tests. REPORT prints a line
# for each package, failures, and skipped tests with the reason. TESTFLAGS=-count=1 also repeats tests that passed.
TESTS   := $(GO) test -json -vet=off -ldflags=-w
REPORT  := $(GO) run ./tools/testreport
LINT    := $(GO) tool -modfile=tools/lint/go.mod golangci-lint
OUT     := out

.PHONY: help build demo doc-tables differential test tests test-alone soak-switch soak-credits soak-scales soak-controller soak-bus race check lint prose generate check-generated bench aggregator repair-losses attacks bench-datapath bench-sim bench-sim-files bench-bus bench-openflow fuzz-datapath fuzz-sim fuzz-openflow fuzz-bus openflow-peers rtl-test rtl-switch rtl-prove rtl-mutate rtl-synth mutate-bus mutate-sim sim-arm64 fairq-lab experiments figures reproduction lab-truth fluid validate man packages deb container deps deps-test clean bench-loop

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 18

# The simulator's laws are C. If no static C program can be built, weir is built without them, and reports that when they
# are used. It is always linked statically, so that the package needs no library.
ifeq ($(shell echo 'int main(void) { return 0; }' | $$($(GO) env CC) -static -x c -o /dev/null - 2>/dev/null && echo yes),yes)
BUILD_ENV = CGO_ENABLED=1
BUILD_FLAGS = -tags netgo,osusergo
BUILD_LINK = -linkmode external -extldflags -static
else
BUILD_ENV = CGO_ENABLED=0
endif

build: ## build ./weir
	$(BUILD_ENV) $(GO) build -trimpath $(BUILD_FLAGS) -ldflags "-X main.version=$(VERSION) $(BUILD_LINK)" -o weir ./cmd/weir

demo: build ## drop-tail, marking and FairQ on real Linux TCP, shortened: under 3 minutes
	@scripts/need-root
	@status=0; ./weir run experiments/incast.yaml --world lab --scheme droptail,ecn,fairq --seed 1 \
		--set duration=8s --set traffic.elephants.stop=8s --set traffic.mice.epochs=50 \
		--set 'measure.windows.loaded=[2s, 7s]' --out $(OUT)/demo || status=$$?; \
	if [ $$status -ne 0 ] && [ $$status -ne 3 ]; then exit $$status; fi; \
	echo; echo "The report: $(OUT)/demo/report.html"

check: lint prose ## the linter, the check of prose and all tests that need no root, clang or Open vSwitch: under a minute; TESTFLAGS=-count=1
	@set -o pipefail; WEIR_NO_ROOT=1 $(TESTS) -short -timeout 20m $(TESTFLAGS) ./... | $(REPORT)

# Tests often wait, for TCP's timers or for the kernel to end a namespace, so four packages run at a time, the longest
# first. MUST='Osken|Tshark' fails the run if a test with such a name was skipped.
LONGEST := ./cmd/weir ./datapath/fairq ./lab ./controller ./sim

# These tests compare the whole machine before and after, so no other test may run at the same time. Compilers may.
ALONE := ^(TestHostIsAsBefore|TestLabWithController)$$

test: deps-test ## all tests, as root, with those on real TCP in namespaces; TESTFLAGS=-count=1
	@scripts/need-root
	@$(MAKE) --no-print-directory -j 2 check-generated tests

# check-generated takes the time in which the tests wait.
tests: test-alone
	@set -o pipefail; $(TESTS) -p 4 -timeout 60m $(TESTFLAGS) -skip '$(ALONE)' $(LONGEST) ./... | $(REPORT) -slowest 15 $(if $(MUST),-must '$(MUST)')

test-alone:
	@set -o pipefail; $(TESTS) -timeout 20m $(TESTFLAGS) -run '$(ALONE)' ./cmd/weir | $(REPORT)

soak-switch: deps-test ## tests that kill and upgrade weir switch and delete its ports, its canaries and predictions, at full length: 25 minutes, on a quiet machine
	@scripts/need-root
	$(GO) test -count=1 -timeout 60m -run '^TestHostIsAsBefore$$' -v ./cmd/weir -soak # first: links of other tests end late
	$(GO) test -count=1 -timeout 60m -run '^Test(Switch_|Canary|Observe)' -v ./cmd/weir -soak

soak-credits: deps-test ## promises and credits of weir switch at full length: 20 kills with 500 packets in the parking, faults of it and of a port: 5 minutes, on a quiet machine
	@scripts/need-root
	$(GO) test -count=1 -timeout 30m -run '^TestSwitchCredits' -v ./cmd/weir -soak

soak-scales: deps-test ## real TCP with each pair of window scales and each setting of offloads; make test has a quarter of them: a minute
	@scripts/need-root
	$(GO) test -count=1 -timeout 30m -run 'EveryPairOfScales' -v ./datapath/fairq -args -pairs

soak-controller: deps-test ## 100 changes between two controllers, killed or stopped at random moments; TestTwoControllers makes 2: half an hour
	@scripts/need-root
	$(GO) test -timeout 120m -run '^$$' -bench TwoControllers -benchtime 100x ./controller

soak-bus: deps-test ## 100 faults of controllers, agent, bus, Open vSwitch, links, disks and clocks while a VM sends, with a bus of three servers and an embedded one: 12 minutes; TestFaults makes 4
	@scripts/need-root
	$(GO) test -timeout 60m -run '^$$' -bench '^Benchmark(StallWithoutWeir|Faults)$$' -benchtime 100x -v ./bus/soak

race: deps-test ## the race detector where a process serves VMs from goroutines of its own: the metadata address, and weir agent: some minutes
	@scripts/need-root
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 60m $(TESTFLAGS) ./datapath/metadata ./agent/agentd ./deadline

lint: ## golangci-lint, pinned in tools/lint
	$(LINT) run ./...

prose: ## check that comments, errors, help, logs and pages are plain English (docs/tables/avoided-words.md); PROSE='-count', '-rules', 'law docs/lab.md'
	$(GO) run ./tools/prose $(PROSE)

# ./weir contains the kernel objects, so it is built after them; otherwise it would run the old law in the lab.
generate: deps-test ## regenerate all generated files: kernel objects (clang-16), messages (protoc), JSON schemas; and ./weir with them
	scripts/generate packages
	@$(MAKE) --no-print-directory build
	scripts/generate schemas

doc-tables: build ## tables of docs/tables, from the sources of weir switch, status, doctor, controller and agent
	scripts/generate schemas
	$(GO) test -count=1 ./agent/switchd ./agent/agentd ./agent/doctor ./bus ./controller ./docs -run 'TestDocTables|TestMetrics_AreDocumented' -update

check-generated: build ## check that the committed generated files match their sources
	@nice -n 19 scripts/check-generated

bench: build ## timings: figures and their ratio to a baseline of the same run
	@echo "how to read it: ns/packet, ns/rewrite: in addition to an empty program; lookups: in units of hash lookups of"
	@echo "the same run; baselines: in units of empty calls from Go into C; conn/s, %cpu: of one CPU, of this process;"
	@echo "cpu-ms/scrape: one reading of /metrics; qdisc-lists: in units of listing all queue disciplines in the same run"
	$(GO) test -run '^$$' -bench . -benchmem ./datapath/... ./lab/traffic ./agent/switchd
	@echo "the simulator's: make bench-sim"

aggregator: build ## an aggregator in Python asks 40 workers, first with drop-tail, then with SED and RSED (root; some minutes)
	deadline/python/aggregator/run

repair-losses: ## loss repair of 1 M packets by the kernel program and in the simulator, and of 10,000 of real connections (root; some minutes)
	$(GO) test -count=1 ./datapath/repair -run 'TestRepair_(Real)?Losses' -v -timeout 30m -args -losses 1000000 -real-losses 10000
	$(GO) test -count=1 ./sim -run TestLossRepair_Losses -v -timeout 30m -args -losses 1000000

attacks: deps-test ## five attacks of a VM in a lab of three hosts under SDN-GCC: by how much other VMs' rates move, and what is counted: 4 minutes, on a quiet machine
	@scripts/need-root
	$(GO) test -count=1 -run '^$$' -bench BenchmarkAttacks -benchtime 1x -v ./lab

bench-datapath: ## cost of the switch program on each path, in addition to an empty program
	@scripts/need-root
	@echo "how to read it: ns/packet: in addition to an empty program of the same run; lookups: in units of hash lookups with a"
	@echo "16-byte key in the same run; flow-lookups: in units of lookups with the flow table's key (a digest of 16 bytes)."
	@echo "Rows called 'part' are not paths: they split up the time of the others."
	$(GO) test -run '^$$' -bench BenchmarkFairQ ./datapath/fairq

bench-sim: ## the simulator: packets per second, cost by queue and flows, memory: minutes; BENCH_SIM='--json --only S1'
	@scripts/bench-sim $(BENCH_SIM)

bench-sim-files: ## the time of whole experiment files in the simulator, on one processor and on two: half an hour; BENCH_FILES=...
	@scripts/bench-sim $(BENCH_SIM) --files $(BENCH_FILES)

bench-bus: deps-test ## simulated switches of 48 ports against one and two controllers, a flood of SYNs, grants by the bus and in frames, 1000 VMs at one host: 5 minutes on a quiet machine
	@scripts/need-root
	@echo "how to read it: switches: the most that the controllers follow at 5 ms; reports/CPU-s: of the controllers alone;"
	@echo "x-decoding: their time for a report, in units of decoding it in the same run; p99-ratio: another switch's lag during the"
	@echo "flood, to the lag before; grants-against-others: of a VM with one flow through the port of the flood; us/...: one grant; x-heartbeat: in units of an owner's heartbeat (two calls of the kernel)"
	$(GO) test -timeout 30m -run '^$$' -bench 'BenchmarkScale|BenchmarkSYNFlood' -benchtime 1x -v ./bus/soak
	@echo "SDN-GCC over the bus, 100 hosts, 25 switches: controller-%: of one processor; answered: messages to VMs, of those that all reports ask for; not-sent: intervals that the simulated switches left out, because the machine was busy"
	$(GO) test -timeout 30m -run '^$$' -bench BenchmarkGCC -benchtime 1x ./bus/soak
	@echo "to-ACK: from a report of a switch by way of a whole controller to the grant in an ACK, by the bus and in frames; bytes: to the agent's host"
	$(GO) test -timeout 30m -run '^$$' -bench BenchmarkMessages -benchtime 1000x ./bus/soak
	@echo "to-packet: from a switch's report with marks to a packet of the VM at the uplink at SDN-GCC's new rate; to-ACK: from a declaration to the first ACK at the VM with SED's new window; to-answer: of it, until the program goes on"
	$(GO) test -timeout 30m -run '^$$' -bench BenchmarkEffect -benchtime 400x ./bus/soak
	@echo "to-ACK: from a reading at a switch to the grant in an ACK; command-to-ACK: of it, from the controller's decision"
	$(GO) test -timeout 30m -run '^$$' -bench BenchmarkLoop -benchtime 1000x ./agent/agentd
	@echo "SDN-GCC's half at a controller, 100 hosts, every VM marked at 4 ports all the time: cpu-%: of one processor; x-lookup: per message to a VM, in units of a lookup in a map of all VMs in the same run"
	$(GO) test -timeout 30m -run '^$$' -bench BenchmarkScale -benchtime 50x ./law/gcc
	$(GO) test -timeout 30m -run '^$$' -bench BenchmarkHost_VMs -benchtime 1x ./datapath/host

bench-loop: deps-test ## from a signal at a switch to an ACK that is limited because of it: 28 and 4 hypervisors with agents, 1000 times each, minutes; LOOP='hosts=28/of=signal/load=idle' is one of six
	@scripts/need-root
	@echo "how to read it: to-ACK: from the SYN that is the signal, or the first of an incast of 21 VMs, to the first limited ACK; part-reading: of it, until"
	@echo "the switch's agent reads its counters (T is 5 ms); part-bus: until the report is at the controller; part-law: until the law has decided; part-command: until the"
	@echo "VM's agent has the command; part-agent: until the kernel has the grant; part-ACK: until the ACK; split: how many signals have these parts; gap-of-ACKs: between two ACKs at the VM"
	@echo "not-seen: events without a limited ACK, and for what reason. SYNs-spread: no reading had enough SYNs; over-when-read, hidden-by-FINs: a late reading had their FINs, or"
	@echo "those of flows before, which the law subtracts; no-ACK-to-limit: none came while the limit lasted. The other reasons are faults of the loop"
	$(GO) test -timeout 30m -run '^$$' -bench 'BenchmarkLoop/$(or $(LOOP),.)' -benchtime 1000x ./lab

bench-openflow: ## the OpenFlow connection compared with os-ken's: messages per second of one processor, waits, memory; BENCH_OPENFLOW='--only packet'
	@mkdir -p $(OUT) && $(GO) build -o $(OUT)/bench-openflow ./openflow/bench
	@python=$$(scripts/osken) && $(OUT)/bench-openflow --osken "$$python" $(BENCH_OPENFLOW)

fuzz-datapath: ## 10 million mutated frames through the switch program, 2 minutes; SEED=n repeats an earlier run
	@scripts/need-root
	$(GO) test -count=1 -timeout 60m -v -run 'TestFairQMutated|TestFairQVeth_Mutated' ./datapath/fairq \
		-args -frames 10000000 -veth 500000 $(if $(SEED),-seed $(SEED))

fuzz-sim: ## 5000 random experiments in the simulator, with losses, flaps and reordering: a minute; FIRST=n begins with that seed
	$(GO) test -count=1 -timeout 120m -run '^TestRandom$$' -v ./sim -args -trials $(or $(TRIALS),5000) $(if $(FIRST),-first $(FIRST))

fuzz-openflow: ## 48 million random, mutated and cut OpenFlow messages, minutes; then native fuzzing from testdata/fuzz; TRIALS=n, SEED=n, FUZZTIME=2m each
	$(GO) test -count=1 -timeout 120m -run '^TestTrials$$' -v ./openflow -args -trials $(or $(TRIALS),48000000) $(if $(SEED),-seed $(SEED))
	$(GO) test -run '^$$' -fuzz '^FuzzDecode$$' -fuzztime $(or $(FUZZTIME),2m) -fuzzminimizetime 5s ./openflow
	$(GO) test -run '^$$' -fuzz '^FuzzConn$$' -fuzztime $(or $(FUZZTIME),2m) -fuzzminimizetime 5s ./openflow/channel

fuzz-bus: ## the decoders of the bus's messages, of frames, of stored policies, of workers' results, of recordings and of deadlines, of sFlow, 13 x 2 minutes; FUZZTIME=10s each
	@for f in Telemetry TelemetryDecoder Events Command Heartbeat; do \
		$(GO) test -run '^$$' -fuzz "^Fuzz$$f$$" -fuzztime $(or $(FUZZTIME),2m) -fuzzminimizetime 5s ./bus/weirv1 || exit 1; done
	$(GO) test -run '^$$' -fuzz '^FuzzFrame$$' -fuzztime $(or $(FUZZTIME),2m) -fuzzminimizetime 5s ./bus/inband
	$(GO) test -run '^$$' -fuzz '^FuzzTake$$' -fuzztime $(or $(FUZZTIME),2m) -fuzzminimizetime 5s ./controller/sflow
	@for f in Task State Result; do \
		$(GO) test -run '^$$' -fuzz "^Fuzz$$f$$" -fuzztime $(or $(FUZZTIME),2m) -fuzzminimizetime 1x ./experiment/remote || exit 1; done
	$(GO) test -run '^$$' -fuzz '^FuzzDecode$$' -fuzztime $(or $(FUZZTIME),2m) -fuzzminimizetime 5s ./policy/store
	$(GO) test -run '^$$' -fuzz '^FuzzReplay$$' -fuzztime $(or $(FUZZTIME),2m) -fuzzminimizetime 1x ./controller/record
	$(GO) test -run '^$$' -fuzz '^FuzzDecode$$' -fuzztime $(or $(FUZZTIME),2m) -fuzzminimizetime 5s ./deadline

openflow-peers: ## compare OpenFlow messages with os-ken and tshark, then os-ken as switch and as controller over TCP and TLS: minutes; EACH=n of each kind
	@scripts/apt-install tshark
	OSKEN_PYTHON=$$(scripts/osken) $(GO) test -count=1 -timeout 60m -run '^Test(Osken|Tshark)' -v ./openflow -args -each $(or $(EACH),200)
	OSKEN_PYTHON=$$(scripts/osken) $(GO) test -count=1 -timeout 60m -run '^TestOsken' -v ./openflow/channel

mutate-bus: ## take the checks of leases, fences and grants out one by one; the histories must find each: minutes
	$(GO) test -count=1 -timeout 60m -run '^TestHistories_FindEachMutant$$' -v ./controller -args -mutate

mutate-sim: ## put bugs into the simulator one by one; the random experiments must find each: 2 minutes
	$(GO) test -count=1 -timeout 60m -run '^TestMutants$$' -v ./sim -args -mutate

sim-arm64: ## the simulator's golden results on arm64, cross-built, under qemu-user: the same bytes
	scripts/sim-arm64

rtl-test: ## FairSwitch's hardware: every module with cocotb and Verilator, the law on 10 million events, a million frames; RTL='events frames'
	@rtl/tb/all $(RTL)

rtl-switch: ## FairSwitch's hardware as a switch of the lab (topology.switch: rtl): ./weir-rtl-switch, with apt's verilator
	@rtl/lab/build weir-rtl-switch

rtl-prove: ## FairSwitch's hardware: its properties, with SymbiYosys and yices; PROVE='skid window' proves those
	@rtl/formal/prove $(PROVE)

rtl-mutate: ## FairSwitch's hardware: the share of MUTANTS=20 changes in each module that its tests and proofs find; MUTATE='counter fifo'
	@"$$(scripts/rtl-tools)/bin/python" rtl/tb/mutate.py $(MUTATE)

rtl-synth: ## FairSwitch's hardware: cells for the paper's FPGA family, and ECP5 placed and routed; SYNTH='area 64' does that
	@rtl/syn/synth $(SYNTH)

differential: ## compare decisions of the kernel and of the simulator, 100,000 of each kind, on real TCP: minutes (docs/differential.md)
	@scripts/need-root
	$(GO) run ./tools/fairq-differential $(DIFFERENTIAL)
	$(GO) test -count=1 -timeout 30m -v -run '^TestDifferential_Release$$' ./datapath/fairq -args -release-answers 100000 | grep -A 60 'all together\|FAIL\|_test.go'
	$(GO) test -count=1 -timeout 30m -v -run '^TestDifferential_FindsMutants$$' ./datapath/fairq -args -mutants | grep '^ *--- '

lab-truth: build deps ## compare the lab with iperf3, nginx, the RTT of a probe, and itself (GROUPS="flood pool": only those)
	@scripts/need-root
	scripts/lab-truth $(GROUPS)

fluid: ## FairQ on the fluid model, and its equilibria: docs/img/q0*.png and docs/tables/fluid.md
	$(GO) run ./tools/fairq-fluidmap docs/img docs/tables/fluid.md

validate: ## compare the simulator with ns-3, from its Python wheel (docs/validation.md): minutes
	scripts/validate $(OUT)/validate

fairq-lab: build ## FairQ's experiments in the lab: about an hour; needs a quiet machine (docs/fairq-lab.md)
	@scripts/need-root
	scripts/experiments $(OUT)/fairq-lab $(addprefix experiments/,incast.yaml incast-guests.yaml incast-udp.yaml \
		incast-netstack.yaml jain.yaml jain-floor.yaml join-leave.yaml)

# FILES='experiments/fairq/F1.yaml ...' selects others, WEIR_RUN='--seed 1' shortens.
FILES ?= $(foreach id,F1 F2 F3 F4 Q4,experiments/fairq/$(id).yaml)

experiments: build ## FairQ's paper in the lab, FILES=...: hours; it continues after a stop (docs/fairq-experiments.md)
	@scripts/need-root
	scripts/experiments $(OUT)/experiments $(FILES)

# IDS='F1 F2' selects, FIGURES='--seeds 1' shortens, FIGURES='--summary results' writes the input of docs/REPRODUCTION.md.
figures: build ## every paper's figures from the simulator, out/figures/index.html; it continues after a stop (docs/results.md)
	@./weir figures $(IDS) --resume $(FIGURES) || [ $$? -eq 3 ] # a refuted claim is a result

reproduction: ## docs/REPRODUCTION.md, docs/tables and the table of claims by paper, from results/ and experiments/
	$(GO) run ./tools/reproduction

man: build ## man pages and shell completions, from the --help texts: out/man, out/completion
	@rm -rf $(OUT)/man $(OUT)/completion && mkdir -p $(OUT)/man $(OUT)/completion
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)} ./weir man $(OUT)/man
	./weir completion bash > $(OUT)/completion/weir.bash
	./weir completion zsh > $(OUT)/completion/_weir
	./weir completion fish > $(OUT)/completion/weir.fish

packages: deb container ## all packages

deb: build ## the Debian package, out/weir_*.deb: the same bytes from the same commit and compiler
	@deploy/deb/build ./weir "$(VERSION)" $(OUT)

container: ## the container image weir:latest, if docker or podman runs
	@tool=$$(command -v podman || command -v docker) && $$tool info >/dev/null 2>&1 || { \
		echo "no container runtime here: deploy/container/Dockerfile explains how to build and run the image"; exit 0; }; \
	$$tool build -f deploy/container/Dockerfile --build-arg VERSION="$(VERSION)" -t weir:latest .

deps: ## install the packages for lab-truth
	@scripts/apt-install iperf3 nginx-light apache2-utils

deps-test: ## install the packages for the tests and for regenerating the kernel objects
	@scripts/apt-install clang-16 llvm-16 libbpf-dev protobuf-compiler gcc libc6-dev iproute2 openvswitch-switch python3

clean: ## remove all build output
	rm -rf weir $(OUT)
