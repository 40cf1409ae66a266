// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Compares fairswitch_law with the C law: the vectors of datapath/core/testdata, then random events in bursts.
//   bench_law VECTORS EVENTS SEED
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "Vfairswitch_law.h"
#include "fairswitch_model.h"
#include "verilated.h"

static const unsigned QUEUES = 4;
static Vfairswitch_law *dut;
static unsigned long cycles, jobs, compared, large, saturated;
static std::mt19937_64 rng;

static unsigned words[4][QUEUES]; // q_words in the last cycles
static unsigned next_sample; // the queue that is sampled next
static unsigned long sample_due; // the cycle of the next sample

static unsigned draw(unsigned n) { return n ? (unsigned)(rng() % n) : 0; }

[[noreturn]] static void fail(const std::string &what)
{
	fprintf(stderr, "cycle %lu: %s\n", cycles, what.c_str());
	exit(1);
}

static void put18(VlWide<3> &wide, unsigned q, unsigned value)
{
	for (unsigned b = 0; b < 18; b++) {
		unsigned at = q * 18 + b;
		wide[at / 32] = (wide[at / 32] & ~(1u << at % 32)) | (value >> b & 1) << at % 32;
	}
}

static void set_words(unsigned q, unsigned value)
{
	put18(dut->q_words, q, value);
	words[cycles % 4][q] = value;
}

static void edge()
{
	dut->clk = 1;
	dut->eval();
	dut->clk = 0;
	dut->eval();
	for (unsigned q = 0; q < QUEUES; q++)
		words[(cycles + 1) % 4][q] = words[cycles % 4][q];
	cycles++;
}

// Compares every queue's registers with the model's.
static void compare(const char *when)
{
	static const char *names[6] = {"flows", "window", "SYNs", "FINs", "RSTs", "MSS"};

	for (unsigned q = 0; q < QUEUES; q++) {
		unsigned want[6];
		model_state(q, want);
		dut->show_q = q;
		dut->lookup_q = q;
		dut->eval();
		unsigned got[6] = {dut->show_flows, dut->show_window, dut->show_syns, dut->show_fins, dut->show_rsts, dut->show_mss};
		for (unsigned i = 0; i < 6; i++)
			if (got[i] != want[i])
				fail(std::string(when) + ": queue " + std::to_string(q) + ": " + names[i] + " is " +
				     std::to_string(got[i]) + ", the model has " + std::to_string(want[i]));
		if (dut->lookup_window != want[1])
			fail("the lookup differs from the register");
	}
	compared++;
}

struct event {
	unsigned kind, payload, in, out;
};
static event before; // the events of the cycle before: the law delays them by one cycle

// All queues are sampled in turn, 4 cycles apart, each `avg_queue_time`. A sample is what the queue held 3 cycles before.
static void sample()
{
	if (dut->sample_q != next_sample || dut->sample != words[(cycles + 1) % 4][next_sample])
		fail("sample " + std::to_string(dut->sample) + " of queue " + std::to_string(dut->sample_q) + "; queue " +
		     std::to_string(next_sample) + " had " + std::to_string(words[(cycles + 1) % 4][next_sample]));
	model_sample(next_sample, dut->sample);
	next_sample = (next_sample + 1) % QUEUES;
	sample_due += next_sample ? 4 : dut->avg_queue_time - 4 * (QUEUES - 1);
}

// One cycle with the events on the inputs, in the order of fairswitch_law: a job, a sample, data, a change of the count.
static void cycle()
{
	dut->eval();
	if (dut->job) {
		compare("before a job"); // the one before it is done
		if (!model_job(dut->job_q))
			fail("a job that the model does not have");
		jobs++;
	}
	if (dut->sampled != (cycles == sample_due))
		fail(dut->sampled ? "a sample at another time" : "no sample");
	if (dut->sampled)
		sample();
	if (before.payload)
		model_data(before.out, before.payload);
	if (before.kind == 1 || before.kind == 3)
		model_count(before.in, before.kind);
	if (before.kind)
		model_count(before.out, before.kind);
	before = {dut->opens ? 1u : dut->closes ? 2u : dut->aborts ? 3u : 0u, dut->payload, dut->queue_in, dut->queue_out};
	edge();
}

static void quiet()
{
	dut->opens = dut->closes = dut->aborts = 0;
	dut->payload = 0;
}

static void settle()
{
	quiet();
	cycle(); // the last event arrives
	for (unsigned i = 0; dut->eval(), dut->busy; i++) {
		cycle();
		if (i > 10000)
			fail("the law does not come to rest");
	}
	cycle();
	compare("at rest");
	for (unsigned q = 0; q < QUEUES; q++)
		if (model_waits(q))
			fail("the model waits for a job");
}

static void begin(unsigned queue_words, unsigned aggregate_max, unsigned floor, unsigned mss_max, unsigned idle,
		  unsigned threshold, unsigned updates, unsigned period)
{
	for (unsigned q = 0; q < QUEUES; q++) {
		model_begin(q, queue_words, aggregate_max, floor, mss_max, idle, threshold, updates);
		put18(dut->q_maxwords, q, queue_words);
		set_words(q, 0);
	}
	dut->aggregate_max = aggregate_max;
	dut->floor_bytes = floor;
	dut->mss_max = mss_max;
	dut->idle_samples = idle;
	dut->threshold = threshold;
	dut->updates = updates;
	dut->avg_queue_time = period;
	quiet();
	before = {};
	dut->rst = 1;
	edge();
	edge();
	dut->rst = 0;
	dut->eval();
	next_sample = 0;
	sample_due = cycles + period + 3;
}

// ---------------------------------------------------------------------------- vectors

static void to_sample()
{
	unsigned i = 0;

	for (dut->eval(); !(dut->sampled && dut->sample_q == QUEUES - 1); dut->eval()) {
		cycle();
		if (i++ > 100000)
			fail("no sample");
	}
	cycle();
}

// Returns cycles between samples that leave time for all events between two samples of the case at `from`.
static unsigned period_of(const std::vector<std::string> &lines, size_t from)
{
	unsigned longest = 0, run = 0;

	for (size_t i = from + 1; i < lines.size() && lines[i][0] != 'c'; i++) {
		run = lines[i][0] == 's' ? 0 : run + (lines[i][0] == '=' ? 400 : 1);
		longest = std::max(longest, run);
	}
	return 400 + longest;
}

// The lines that fairswitch_test.go writes.
static void vectors(const char *name)
{
	std::ifstream file(name);
	std::vector<std::string> lines;
	unsigned n = 0, checked = 0;

	for (std::string text; std::getline(file, text);)
		lines.push_back(text);
	for (size_t at = 0; at < lines.size(); at++) {
		const char *line = lines[at].c_str();
		unsigned a[7], flows, window;
		n++;
		quiet();
		dut->queue_out = 0;
		dut->queue_in = 1;
		if (sscanf(line, "c %u %u %u %u %u %u %u", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6) == 7) {
			begin(a[0], a[1], a[2], a[3], a[4], a[5], a[6], period_of(lines, at));
			continue;
		}
		switch (line[0]) {
		case 'o': dut->opens = 1; cycle(); break;
		case 'f': dut->closes = 1; cycle(); break;
		case 'r': dut->aborts = 1; cycle(); break;
		case 'd': dut->payload = (unsigned)atoi(line + 2); if (dut->payload) cycle(); break;
		case 's': set_words(0, (unsigned)atoi(line + 2)); to_sample(); break;
		case '=':
			settle();
			if (sscanf(line, "= %u %*u %u", &flows, &window) != 2)
				fail(std::string("line ") + std::to_string(n) + ": not understood");
			dut->show_q = 0;
			dut->eval();
			if (dut->show_flows != flows || dut->show_window != window)
				fail("line " + std::to_string(n) + ": " + std::to_string(dut->show_flows) + " flows, window " +
				     std::to_string(dut->show_window) + "; wanted " + line);
			checked++;
			break;
		}
	}
	if (checked < 1000)
		fail("only " + std::to_string(checked) + " results in the vectors");
	printf("vectors: %u lines, %u results equal\n", n, checked);
}

// ---------------------------------------------------------------------------- large steps

// Changes registers of the block, at rest.
static void change(unsigned floor, unsigned updates)
{
	for (unsigned q = 0; q < QUEUES; q++)
		model_change(q, floor, updates);
	dut->floor_bytes = floor;
	dut->updates = updates;
	cycle();
	cycle();
}

// Takes this many samples of queue 0.
static void samples(unsigned value, unsigned n)
{
	set_words(0, value);
	for (unsigned i = 0; i < n; i++)
		to_sample();
	settle();
}

// Updates by `step` and more of an aggregate of 8 MB to 1 GB. Floors raise an aggregate above 2 MB; with the largest MSS and a target of
// one word the mean of the samples chooses the step.
static void large_step(unsigned flows, unsigned raises)
{
	static const unsigned updates = 8, mss = (1 << 14) - 1;

	begin(1, 0, 65535, 0, 0, 0, 1, 250);
	for (unsigned i = 0; i < flows; i++) {
		quiet();
		dut->closes = 0;
		dut->opens = 1;
		dut->queue_in = 1; // each counts at both queues
		dut->queue_out = 0;
		dut->payload = 65535;
		cycle();
	}
	settle();
	samples(0, raises + 1);
	change(1, updates);
	unsigned state[6];
	model_state(0, state);
	unsigned long aggregate = (unsigned long)state[1] * state[0];
	unsigned average = (unsigned)(aggregate / mss) * (60 + draw(40)) / 100;
	samples(average * 32 / updates + 1, updates);
	model_state(0, state);
	if (state[0] != flows || (unsigned long)state[1] * flows >= aggregate || aggregate - (unsigned long)state[1] * flows < 8000000)
		fail("the step is not large");
	for (unsigned i = 0; i < 4; i++) // the rest is seen too
		samples(0, updates);
	saturated += state[0] == 4095;
	large++;
}

static void large_steps()
{
	for (unsigned flows : {257u, 513u, 1025u, 2049u, 4095u})
		for (unsigned i = 0; i < 4; i++)
			large_step(flows, i);
	large_step(4095, 16500); // 512 MB
	printf("large steps: %lu updates by 8 MB and more equal\n", large);
}

// ---------------------------------------------------------------------------- random events

static void random_events(unsigned long events)
{
	unsigned long done = 0, opened = 0;

	while (done < events) {
		unsigned threshold = draw(8), floors[] = {0, 1, 1461, 8961, 65535}, most[] = {0, 1, 1u << 20, (1u << 30) - 1};
		unsigned size = draw(3) ? 1 + draw(1u << (4 + draw(14))) : (1u << 18) - 1;

		begin(size, most[draw(4)], floors[draw(5)], draw(2) ? 1460 : draw(1 << 14), draw(2) ? 0 : 3 + draw(400), threshold,
		      draw(2) ? 10 : draw(64), 300 + draw(3000));
		unsigned busy = draw(3); // 0: bursts, 1: an event each cycle, 2: seldom
		unsigned skew = draw(4); // more begin than end, and the other way round
		for (unsigned long i = 0, n = std::min(events - done, 200000ul); i < n; i++, done++) {
			quiet();
			dut->queue_in = draw(QUEUES);
			dut->queue_out = draw(8) ? draw(QUEUES) : dut->queue_in;
			unsigned kind = draw(12);
			if (kind < 3 || (skew == 1 && kind < 8))
				dut->opens = 1, opened++;
			else if (kind < 5)
				dut->closes = 1;
			else if (kind == 5)
				dut->aborts = 1;
			if (draw(2))
				dut->payload = draw(4) ? 1448 : draw(65536);
			cycle();
			if (dut->payload == 0 && draw(64) == 0)
				set_words(draw(QUEUES), draw(size + size / 4 + 2) & 0x3ffff);
			unsigned gap = busy == 0 ? (draw(32) ? 0 : draw(200)) : busy == 1 ? 0 : draw(8);
			quiet();
			while (gap--)
				cycle();
			if (draw(20000) == 0)
				settle();
		}
		unsigned state[6];
		model_state(0, state);
		saturated += state[0] == 4095 || state[2] == 65535;
		settle();
		quiet(); // a time without events: idle queues end
		for (unsigned i = 0; i < 3000; i++)
			cycle();
	}
	if (jobs < 1000 || !saturated)
		fail("the run had " + std::to_string(jobs) + " jobs, and " + std::to_string(saturated) + " full counters");
	printf("events: %lu (%lu of them SYN-ACKs), %lu cycles, %lu jobs, all registers compared %lu times, %lu cases with full counters: "
	       "all equal\n", done, opened, cycles, jobs, compared, saturated);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: %s VECTORS EVENTS SEED\n", argv[0]);
		return 2;
	}
	rng.seed(strtoul(argv[3], nullptr, 10));
	dut = new Vfairswitch_law;
#ifdef MUTANTS // tb/mutate.py
	dut->mutsel = (unsigned short)atoi(getenv("MUTANT"));
#endif
	vectors(argv[1]);
	large_steps();
	rng.seed(strtoul(argv[3], nullptr, 10));
	random_events(strtoul(argv[2], nullptr, 10));
	return 0;
}
