// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Random frames, good and bad, for the bench.
#ifndef WEIR_RTL_FRAMES_H
#define WEIR_RTL_FRAMES_H

#include <cstdint>
#include <random>
#include <vector>

using bytes = std::vector<uint8_t>;

class frames {
public:
	explicit frames(uint64_t seed) : rng(seed) {}

	unsigned draw(unsigned n) { return n ? (unsigned)(rng() % n) : 0; }

	struct made {
		bytes data;
		unsigned ip = 0, tcp = 0; // where the headers begin; 0: none
		bool v6 = false, right = false; // both checksums are right, and nothing is cut
	};

	made next()
	{
		made f;
		bytes &d = f.data;
		for (int i = 0; i < 12; i++)
			d.push_back((uint8_t)rng());
		for (unsigned tags = draw(4) ? 0 : 1 + draw(3); tags; tags--) {
			put(d, draw(3) ? 0x8100 : 0x88a8);
			put(d, rng());
		}
		unsigned kind = draw(16);
		if (kind == 0)
			other(d);
		else if (kind < 12)
			ip4(f);
		else
			ip6(f);
		if (draw(8) == 0) { // cut anywhere
			d.resize(1 + draw((unsigned)d.size()));
			f.right = false;
		}
		return f;
	}

	static uint32_t add(uint32_t sum, const bytes &d, size_t from, size_t to)
	{
		for (size_t i = from; i < to; i++)
			sum += (i - from) & 1 ? d[i] : d[i] << 8;
		while (sum >> 16)
			sum = (sum & 0xffff) + (sum >> 16);
		return sum;
	}

	// The receiver's sums: 0xffff if right.
	static unsigned ip_sum(const made &f) { return f.v6 ? 0xffff : add(0, f.data, f.ip, f.ip + (f.data[f.ip] & 15) * 4); }
	static unsigned tcp_sum(const made &f)
	{
		uint32_t sum = 6 + (uint32_t)(f.data.size() - f.tcp);
		sum = f.v6 ? add(sum, f.data, f.ip + 8, f.ip + 40) : add(sum, f.data, f.ip + 12, f.ip + 20);
		return add(sum, f.data, f.tcp, f.data.size());
	}

private:
	std::mt19937_64 rng;

	void put(bytes &d, uint64_t value)
	{
		d.push_back((uint8_t)(value >> 8));
		d.push_back((uint8_t)value);
	}
	void noise(bytes &d, unsigned n)
	{
		while (n--)
			d.push_back((uint8_t)rng());
	}
	void set(bytes &d, size_t at, unsigned value)
	{
		d[at] = (uint8_t)(value >> 8);
		d[at + 1] = (uint8_t)value;
	}
	unsigned length()
	{
		static const unsigned often[] = {0, 1, 2, 6, 10, 1448, 1460};
		return draw(4) == 0 ? draw(128) : draw(50) == 0 ? draw(8960) : often[draw(draw(8) ? 5 : 7)];
	}
	void other(bytes &d)
	{
		static const unsigned types[] = {0x0806, 0x88cc, 46, 0x0801, 0x86de, 0x8000};
		put(d, types[draw(6)]);
		noise(d, length());
	}
	// A TCP segment behind a header of `ip` bytes.
	void segment(made &f)
	{
		static const unsigned flags[] = {0x10, 0x10, 0x10, 0x18, 0x12, 0x02, 0x11, 0x01, 0x04, 0x14, 0xd2, 0x50, 0x13, 0x16, 0x15, 0x00};
		static const unsigned windows[] = {0, 1, 2, 65535, 65534, 1461, 229};
		bytes &d = f.data;
		unsigned options = draw(2) ? 0 : draw(11), reserved = draw(2) ? draw(16) : 0;
		f.tcp = (unsigned)d.size();
		noise(d, 12);
		d.push_back((uint8_t)((5 + options) << 4 | reserved));
		d.push_back((uint8_t)(draw(8) ? flags[draw(16)] : rng()));
		put(d, draw(2) ? windows[draw(7)] : rng());
		put(d, 0);
		put(d, 0);
		noise(d, options * 4 + length());
	}
	void finish(made &f)
	{
		bytes &d = f.data;
		f.right = true;
		if (!f.v6)
			set(d, f.ip + 10, 0xffff & ~ip_sum(f));
		if (f.tcp)
			set(d, f.tcp + 16, 0xffff & ~tcp_sum(f));
		if (draw(16) == 0) { // checksums that are wrong, and those at the ends of one's complement
			f.right = false;
			if (!f.v6)
				set(d, f.ip + 10, draw(2) ? (draw(2) ? 0 : 0xffff) : (unsigned)rng());
			if (f.tcp)
				set(d, f.tcp + 16, draw(2) ? (draw(2) ? 0 : 0xffff) : (unsigned)rng());
		}
		if (draw(12) == 0) { // lengths, versions, offsets that are wrong
			f.right = false;
			unsigned at = f.ip + draw(f.v6 ? 8 : 12);
			if (f.tcp && draw(2))
				at = f.tcp + 12;
			if (at < d.size())
				d[at] = (uint8_t)rng();
		}
	}
	void ip4(made &f)
	{
		bytes &d = f.data;
		unsigned options = draw(3) ? 0 : draw(11);
		put(d, 0x0800);
		f.ip = (unsigned)d.size();
		d.push_back((uint8_t)(0x45 + options));
		d.push_back((uint8_t)(draw(2) ? draw(4) : rng()));
		put(d, 0);
		put(d, rng());
		put(d, draw(8) ? 0x4000 : draw(2) ? 0x2000 : rng());
		d.push_back(64);
		d.push_back((uint8_t)(draw(8) ? 6 : 17));
		put(d, 0);
		noise(d, 8 + options * 4);
		if (d[f.ip + 9] == 6)
			segment(f);
		else
			noise(d, length());
		set(d, f.ip + 2, (unsigned)d.size() - f.ip);
		finish(f);
	}
	void ip6(made &f)
	{
		bytes &d = f.data;
		put(d, 0x86dd);
		f.v6 = true;
		f.ip = (unsigned)d.size();
		put(d, 0x6000 | (draw(2) ? draw(4) << 4 : rng() & 0xfff));
		put(d, rng());
		put(d, 0);
		d.push_back((uint8_t)(draw(8) ? 6 : draw(2) ? 0 : 17));
		d.push_back(64);
		noise(d, 32);
		if (d[f.ip + 6] == 6)
			segment(f);
		else
			noise(d, length());
		set(d, f.ip + 4, (unsigned)d.size() - f.ip - 40);
		finish(f);
	}
};

#endif
