// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The Verilated block: frames go in and come out cycle by cycle, and registers are read and written.
#ifndef WEIR_RTL_BLOCK_H
#define WEIR_RTL_BLOCK_H

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "Vfairswitch.h"

#ifndef QUEUES
#define QUEUES 8
#endif
static_assert(QUEUES > 1 && (QUEUES & (QUEUES - 1)) == 0, "tuser has a whole number of bits for each queue");

struct frame {
	std::vector<uint8_t> data;
	unsigned in, out; // queues
};

class block {
public:
	static constexpr unsigned lanes = 8; // DATA_W is 64
	uint64_t cycles = 0;

	block()
	{
		d.s_axis_tvalid = 0;
		d.m_axis_tready = 1;
		d.rst = 1;
		for (int i = 0; i < 20; i++)
			edge();
		d.rst = 0;
		cycles = 0;
	}

	void push(frame &&f) { waiting.push_back(std::move(f)); }
	size_t waits() const { return waiting.size(); }
	// A frame is at the input or inside.
	bool busy() const { return inside != 0 || !waiting.empty(); }

	// Runs one cycle. leave(frame) is called for a frame whose last transfer left.
	template <class Leave> void cycle(Leave leave)
	{
		if (!busy()) {
			edge();
			return;
		}
		present();
		d.clk = 0;
		d.eval();
		if (d.m_axis_tvalid)
			take(leave);
		bool taken = d.s_axis_tvalid && d.s_axis_tready;
		d.clk = 1;
		d.eval();
		cycles++;
		if (taken)
			next();
	}

	void queue(unsigned q, unsigned words, unsigned most)
	{
		put18(d.q_words, q, words);
		put18(d.q_maxwords, q, most);
	}

	template <class Leave> void write(unsigned address, uint32_t value, Leave leave)
	{
		d.s_axil_awaddr = address;
		d.s_axil_wdata = value;
		d.s_axil_awvalid = d.s_axil_wvalid = d.s_axil_bready = 1;
		for (bool ready = false; !ready;) {
			d.clk = 0;
			d.eval();
			ready = d.s_axil_awready;
			cycle(leave);
		}
		d.s_axil_awvalid = d.s_axil_wvalid = 0;
		cycle(leave);
	}

	template <class Leave> uint32_t read(unsigned address, Leave leave)
	{
		d.s_axil_araddr = address;
		d.s_axil_arvalid = 1;
		d.s_axil_rready = 0;
		for (bool ready = false; !ready;) {
			d.clk = 0;
			d.eval();
			ready = d.s_axil_arready;
			cycle(leave);
		}
		d.s_axil_arvalid = 0;
		while (!d.s_axil_rvalid)
			cycle(leave);
		uint32_t value = d.s_axil_rdata;
		d.s_axil_rready = 1;
		cycle(leave);
		return value;
	}

private:
	Vfairswitch d;
	std::deque<frame> waiting;
	size_t at = 0;       // the first byte of waiting.front() that was not taken
	unsigned inside = 0; // frames whose first transfer was taken
	std::vector<uint8_t> leaving;

	void edge()
	{
		d.clk = 0;
		d.eval();
		d.clk = 1;
		d.eval();
		cycles++;
	}

	void present()
	{
		d.s_axis_tvalid = !waiting.empty();
		if (waiting.empty())
			return;
		const frame &f = waiting.front();
		size_t n = f.data.size() - at < lanes ? f.data.size() - at : lanes;
		uint64_t word = 0;
		memcpy(&word, f.data.data() + at, n);
		d.s_axis_tdata = word;
		d.s_axis_tkeep = (1u << n) - 1;
		d.s_axis_tlast = at + n == f.data.size();
		d.s_axis_tuser = f.out << width() | f.in;
	}

	// The transfer was taken.
	void next()
	{
		if (at == 0)
			inside++;
		at += lanes;
		if (at < waiting.front().data.size())
			return;
		waiting.pop_front();
		at = 0;
		d.s_axis_tvalid = 0;
	}

	template <class Leave> void take(Leave leave)
	{
		uint64_t word = d.m_axis_tdata;
		unsigned keep = d.m_axis_tkeep, n = 0;
		while (keep >> n & 1)
			n++;
		leaving.insert(leaving.end(), (uint8_t *)&word, (uint8_t *)&word + n);
		if (!d.m_axis_tlast)
			return;
		unsigned user = d.m_axis_tuser;
		inside--;
		leave(frame{std::move(leaving), user & (QUEUES - 1), user >> width()});
		leaving.clear();
	}

	static constexpr unsigned width()
	{
		unsigned bits = 0;
		while (1u << bits < QUEUES)
			bits++;
		return bits;
	}

	template <class T> static void put18(T &wide, unsigned q, unsigned value)
	{
		value = value > 0x3ffff ? 0x3ffff : value;
		for (unsigned b = 0; b < 18; b++) {
			unsigned i = q * 18 + b;
			wide[i / 32] = (wide[i / 32] & ~(1u << i % 32)) | (value >> b & 1) << i % 32;
		}
	}
};

#endif
