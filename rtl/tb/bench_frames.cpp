// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Compares the block with the C model, frame by frame: random frames, with idle cycles and back-pressure, while the law works.
// Then it measures bubbles and latency.
//   bench_frames FRAMES SEED
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>

#include "Vfairswitch.h"
#include "Vfairswitch___024root.h"
#include "frames.h"
#include "fairswitch_model.h"
#include "verilated.h"

static const unsigned QUEUES = 8;
#ifndef DATA_W
#define DATA_W 64
#endif
static const unsigned LANES = DATA_W / 8;

static Vfairswitch *dut;
#define INNER(name) (dut->rootp->fairswitch__DOT__##name)
static unsigned long cycles;

struct sent {
	frames::made made;
	unsigned in, out; // queues
	unsigned event = 0, payload = 0;
	unsigned long arrived = 0;
};

static std::deque<sent> undecided, inside;
static bytes arriving; // the frame at the output, as far as it has come
static bool events_due;
static sent events;
static sent counted; // the events of the cycle before: the law delays them by one cycle
static unsigned window_before[16];
static unsigned words[16], maxwords[16];
static unsigned long moved[16]; // when words changed
static unsigned clear, ecn, ecn_shift, enable, period;
static unsigned long samples, sampled_at; // sampled_at: the cycle of the last sample of queue 0
static unsigned long checked, changed, marked, sums, tcps, rewritten;
static unsigned long counted_before[4]; // frames, segments, marks, rewritten windows when the block was reset
static unsigned long latency_least, latency_most;

[[noreturn]] static void fail(const std::string &what)
{
	fprintf(stderr, "cycle %lu, frame %lu: %s\n", cycles, checked, what.c_str());
	exit(1);
}

template <class T> static void put18(T &wide, unsigned q, unsigned value)
{
	for (unsigned b = 0; b < 18; b++) {
		unsigned at = q * 18 + b;
		wide[at / 32] = (wide[at / 32] & ~(1u << at % 32)) | (value >> b & 1) << at % 32;
	}
}

static uint8_t *lanes_in() { return reinterpret_cast<uint8_t *>(&dut->s_axis_tdata); }
static const uint8_t *lanes_out() { return reinterpret_cast<uint8_t *>(&dut->m_axis_tdata); }

// A frame was looked up: the model decides with the same window, and the law's order is checked.
static void decide()
{
	if (undecided.empty())
		fail("a decision without a frame");
	sent f = undecided.front();
	undecided.pop_front();
	if (INNER(lookup_in) != f.in || INNER(lookup_out) != f.out)
		fail("the decision has another frame's queues");
	unsigned state[6], window = INNER(window);
	model_state(f.in, state);
	if (window != state[1] && window != window_before[f.in])
		fail("the window is " + std::to_string(window) + ", the model has " + std::to_string(state[1]) + ", and had " +
		     std::to_string(window_before[f.in]));
	unsigned over = INNER(over) >> f.out & 1;
	if (cycles - moved[f.out] > QUEUES + 3 && over != (ecn && words[f.out] > maxwords[f.out] >> ecn_shift))
		fail("over is " + std::to_string(over));
	bytes original = f.made.data;
	unsigned r = model_frame(f.made.data.data(), (unsigned)f.made.data.size(), enable ? window : 0, over, clear);
	f.event = r & 3;
	f.payload = r >> 8;
	tcps += r >> 2 & 1;
	marked += r >> 3 & 1;
	rewritten += r >> 4 & 1;
	changed += f.made.data != original;
	if (f.made.right && clear != 2 && (frames::ip_sum(f.made) != 0xffff || (f.made.tcp && frames::tcp_sum(f.made) != 0xffff)))
		fail("the model spoils a checksum");
	sums += f.made.right && f.made.data != original;
	events = f;
	events_due = true;
	inside.push_back(f);
}

static void check_events()
{
	unsigned event = INNER(opens) ? 1 : INNER(closes) ? 2 : INNER(aborts) ? 3 : 0;

	if (!events_due) {
		if (event || INNER(payload))
			fail("an event without a frame");
		return;
	}
	events_due = false;
	if (event != events.event || INNER(payload) != (events.payload & 0xffff))
		fail("event " + std::to_string(event) + ", payload " + std::to_string(INNER(payload)) + "; the model has " +
		     std::to_string(events.event) + ", " + std::to_string(events.payload));
	if ((event || events.payload) && (INNER(event_in) != events.in || INNER(event_out) != events.out))
		fail("an event at other queues");
}

// The law's model, in the order of fairswitch_law.
static void follow_law()
{
	if (INNER(law_job)) {
		unsigned q = INNER(law_job_q), state[6];
		for (unsigned i = 0; i < QUEUES; i++) { // earlier jobs are done
			model_state(i, state);
			window_before[i] = state[1];
		}
		if (!model_job(q))
			fail("a job that the model does not have");
	}
	if (INNER(law_sampled)) {
		unsigned q = INNER(law_sample_q);
		if (q == 0 && sampled_at && cycles - sampled_at != period)
			fail("samples are " + std::to_string(cycles - sampled_at) + " cycles apart");
		if (q == 0)
			sampled_at = cycles;
		if (cycles - moved[q] > 4 && INNER(law_sample) != words[q])
			fail("a sample is not what the queue holds");
		samples++;
		model_sample(q, INNER(law_sample));
	}
	if (counted.payload)
		model_data(counted.out, counted.payload);
	if (counted.event == 1 || counted.event == 3)
		model_count(counted.in, counted.event);
	if (counted.event)
		model_count(counted.out, counted.event);
	counted.event = INNER(opens) ? 1 : INNER(closes) ? 2 : INNER(aborts) ? 3 : 0;
	counted.payload = INNER(payload);
	counted.in = INNER(event_in);
	counted.out = INNER(event_out);
}

static void take_output()
{
	if (!dut->m_axis_tvalid || !dut->m_axis_tready)
		return;
	if (inside.empty())
		fail("a beat without a frame");
	const sent &f = inside.front();
	uint64_t keep = dut->m_axis_tkeep;
	for (unsigned i = 0; i < LANES; i++)
		if (keep >> i & 1)
			arriving.push_back(lanes_out()[i]);
	if (dut->m_axis_tuser != (f.out << 3 | f.in))
		fail("another frame's queues at the output");
	if (!dut->m_axis_tlast)
		return;
	if (arriving != f.made.data) {
		std::string where;
		for (size_t i = 0; i < std::max(arriving.size(), f.made.data.size()); i++)
			if (i >= arriving.size() || i >= f.made.data.size() || arriving[i] != f.made.data[i])
				where += " " + std::to_string(i);
		fail("the frame of " + std::to_string(f.made.data.size()) + " bytes (IP at " + std::to_string(f.made.ip) + ", TCP at " +
		     std::to_string(f.made.tcp) + ") differs at" + where.substr(0, 200));
	}
	unsigned long took = cycles - f.arrived;
	latency_least = std::min(latency_least, took);
	latency_most = std::max(latency_most, took);
	arriving.clear();
	inside.pop_front();
	checked++;
}

static void cycle()
{
	dut->eval();
	take_output();
	check_events();
	if (INNER(decided))
		decide();
	follow_law();
	dut->clk = 1;
	dut->eval();
	dut->clk = 0;
	dut->eval();
	cycles++;
}

static void write(unsigned address, unsigned value)
{
	dut->s_axil_awaddr = address;
	dut->s_axil_wdata = value;
	dut->s_axil_awvalid = dut->s_axil_wvalid = 1;
	do
		dut->eval();
	while (!dut->s_axil_awready && (cycle(), true));
	cycle();
	dut->s_axil_awvalid = dut->s_axil_wvalid = 0;
	cycle(); // the answer waits
	if (!dut->s_axil_bvalid || dut->s_axil_bresp)
		fail("a write was not answered");
	dut->s_axil_bready = 1;
	cycle();
	dut->s_axil_bready = 0;
}

static unsigned read(unsigned address)
{
	dut->s_axil_araddr = address;
	dut->s_axil_arvalid = 1;
	do
		dut->eval();
	while (!dut->s_axil_arready && (cycle(), true));
	cycle();
	dut->s_axil_arvalid = 0;
	while (!dut->s_axil_rvalid)
		cycle();
	cycle(); // the answer waits
	if (!dut->s_axil_rvalid || dut->s_axil_rresp)
		fail("a read was not answered");
	unsigned value = dut->s_axil_rdata;
	dut->s_axil_rready = 1;
	cycle();
	dut->s_axil_rready = 0;
	return value;
}

// The registers of a run.
struct registers {
	unsigned clear = 0, enable = 1, ecn = 0, period = 3000, updates = 10, threshold = 2, ecn_shift = 2, floor = 1461, most = 0, mss = 1460,
		 idle = 0;
};

// The sizes of the queues are in maxwords.
static void begin(const registers &r)
{
	clear = r.clear;
	enable = r.enable;
	ecn = r.ecn;
	ecn_shift = r.ecn_shift;
	period = r.period;
	sampled_at = 0;
	for (unsigned q = 0; q < QUEUES; q++) {
		model_begin(q, maxwords[q], r.most, r.floor, r.mss, r.idle, r.threshold, r.updates);
		put18(dut->q_maxwords, q, maxwords[q]);
		put18(dut->q_words, q, words[q] = 0);
		moved[q] = cycles;
		window_before[q] = 0;
	}
	dut->rst = 1;
	dut->s_axis_tvalid = 0;
	dut->m_axis_tready = 1;
	for (int i = 0; i < 20; i++) {
		dut->clk = 1;
		dut->eval();
		dut->clk = 0;
		dut->eval();
	}
	dut->rst = 0;
	events_due = false;
	counted = {};
	const unsigned values[] = {r.clear | r.enable << 2 | r.ecn << 3, r.period, r.updates, r.threshold, r.ecn_shift, r.floor, r.most, r.mss,
				   r.idle};
	for (unsigned i = 0; i < 9; i++)
		write(4 + 4 * i, values[i]);
	unsigned long now[] = {checked, tcps, marked, rewritten};
	std::copy(now, now + 4, counted_before);
}

// Compares all counts, and the registers of all queues, with the model's. All frames have left, and the law is at rest.
static void compare_registers()
{
	const unsigned long now[] = {checked, tcps, marked, rewritten};

	for (unsigned i = 0; i < 4; i++)
		if (read(0x28 + 4 * i) != (unsigned)(now[i] - counted_before[i]))
			fail("count " + std::to_string(i) + " is wrong");
	for (unsigned q = 0; q < QUEUES; q++) {
		for (unsigned i = 0; i < 6; i++) {
			unsigned got, want[6];
			unsigned long before;
			do {
				before = samples;
				got = read(0x400 + 0x20 * q + 4 * i);
				model_state(q, want);
			} while (INNER(law_busy) || samples != before); // the model may be ahead
			if (got != want[i])
				fail("register " + std::to_string(i) + " of queue " + std::to_string(q) + " is " + std::to_string(got) +
				     ", the model has " + std::to_string(want[i]));
		}
	}
}

// Presents one transfer, and holds it until it is taken. `ready` says in how many of 256 cycles the sink is ready.
static void beat(frames &draws, const bytes &d, size_t at, unsigned ready)
{
	unsigned n = (unsigned)std::min<size_t>(LANES, d.size() - at);

	for (unsigned i = 0; i < LANES; i++)
		lanes_in()[i] = i < n ? d[at + i] : (uint8_t)draws.draw(256); // what is not kept is noise
	dut->s_axis_tkeep = n == 64 ? ~0ull : (1ull << n) - 1;
	dut->s_axis_tlast = at + n == d.size();
	dut->s_axis_tvalid = 1;
	for (;;) {
		dut->m_axis_tready = draws.draw(256) < ready;
		dut->eval();
		bool taken = dut->s_axis_tready;
		cycle();
		if (taken)
			break;
	}
	dut->s_axis_tvalid = 0;
}

static void send(frames &draws, sent f, unsigned ready, unsigned idle)
{
	bytes d = f.made.data;

	dut->s_axis_tuser = f.out << 3 | f.in;
	f.arrived = cycles;
	undecided.push_back(f);
	for (size_t at = 0; at < d.size(); at += LANES) {
		while (draws.draw(256) < idle) {
			dut->m_axis_tready = draws.draw(256) < ready;
			cycle();
		}
		beat(draws, d, at, ready);
	}
}

static void drain()
{
	dut->m_axis_tready = 1;
	for (unsigned i = 0; !undecided.empty() || !inside.empty(); i++) {
		cycle();
		if (i > 20000)
			fail("frames stay inside");
	}
}

static void random_frames(unsigned long frames_wanted, uint64_t seed)
{
	frames draws(seed);
	static const unsigned rates[] = {256, 256, 200, 128, 30};

	for (unsigned long done = 0; done < frames_wanted;) {
		registers r;
		bool usual = draws.draw(2);
		for (unsigned q = 0; q < QUEUES; q++)
			maxwords[q] = usual ? 65536 : draws.draw(1u << (6 + draws.draw(13)));
		r.clear = draws.draw(3);
		r.ecn = draws.draw(4) != 0;
		r.enable = draws.draw(8) != 0;
		r.idle = draws.draw(2) ? 0 : 20;
		if (!usual) {
			static const unsigned floors[] = {0, 1461, 8961, 65535}, mosts[] = {0, 20000, 1 << 24};
			r.period = 1700 + draws.draw(3000);
			r.updates = draws.draw(20);
			r.threshold = draws.draw(5);
			r.ecn_shift = draws.draw(5);
			r.floor = floors[draws.draw(4)];
			r.most = mosts[draws.draw(3)];
			r.mss = draws.draw(2) ? 1460 : draws.draw(1 << 14);
		}
		begin(r);
		unsigned ready = rates[draws.draw(5)], idle = draws.draw(2) ? 0 : draws.draw(200);
		for (unsigned long i = 0, n = std::min(frames_wanted - done, 2000ul); i < n; i++, done++) {
			sent f;
			f.made = draws.next();
			f.in = draws.draw(QUEUES);
			f.out = draws.draw(QUEUES);
			if (draws.draw(16) == 0) {
				unsigned q = draws.draw(QUEUES), w = draws.draw(maxwords[q] + 1);
				if (draws.draw(2)) // at the marking threshold
					w = std::min((maxwords[q] >> r.ecn_shift) + draws.draw(2), maxwords[q]);
				put18(dut->q_words, q, words[q] = w);
				moved[q] = cycles;
			}
			send(draws, f, ready, idle);
		}
		drain();
		for (unsigned i = 0; i < 20 || (INNER(law_busy) && i < 5000); i++)
			cycle();
		compare_registers();
	}
	if (checked != frames_wanted || !changed || !marked || !sums)
		fail("the run did not cover rewriting and marking");
	printf("%d bit: %lu frames in %lu cycles: %lu TCP, %lu changed, %lu marked, %lu with right checksums before and after a change: "
	       "all equal to the model\n", DATA_W, checked, cycles, tcps, changed, marked, sums);
}

// Equal frames back to back into a sink that is always ready.
static void measure(unsigned size)
{
	frames draws(1);
	sent f;

	do
		f.made = draws.next();
	while (!(f.made.right && !f.made.v6 && f.made.ip == 14 && f.made.tcp == 34 && f.made.data[46] >> 4 == 5 && f.made.data[20] == 0x40 &&
		 f.made.data[21] == 0 && f.made.data.size() >= 64));
	std::fill(maxwords, maxwords + QUEUES, 65536);
	begin({});
	f.made.data.resize(size);
	f.made.data[47] = 0x10;
	f.made.right = false;
	f.in = 0;
	f.out = 1;
	latency_least = ~0ul;
	latency_most = 0;
	unsigned long start = cycles, n = 2000;
	for (unsigned long i = 0; i < n; i++)
		send(draws, f, 256, 0);
	unsigned long took = cycles - start, beats = n * ((size + LANES - 1) / LANES);
	drain();
	if (took != beats)
		fail(std::to_string(took - beats) + " bubbles in frames of " + std::to_string(size) + " bytes");
	printf("%d bit, %4u bytes: %.4f bubbles a frame, %lu cycles a frame, first beat in to last beat out %lu to %lu cycles "
	       "(%lu of them the frame)\n", DATA_W, size, (double)(took - beats) / (double)n, (size + LANES - 1ul) / LANES, latency_least,
	       latency_most, (size + LANES - 1ul) / LANES - 1);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s FRAMES SEED\n", argv[0]);
		return 2;
	}
	dut = new Vfairswitch;
#ifdef MUTANTS // tb/mutate.py
	dut->mutsel = (unsigned short)atoi(getenv("MUTANT"));
#endif
	random_frames(strtoul(argv[1], nullptr, 10), strtoull(argv[2], nullptr, 10));
	for (unsigned size : {60u, 64u, 65u, 128u, 1500u, 1514u})
		measure(size);
	return 0;
}
