// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A port: a packet socket on a device. Its output queue is the device's own, with its limit and rate: the program measures it.
#ifndef WEIR_RTL_PORT_H
#define WEIR_RTL_PORT_H

#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

class port {
public:
	static constexpr size_t most = 2048; // bytes of a frame

	std::string name;
	unsigned max_bytes; // the queue's limit
	int fd;
	uint64_t sent = 0, drops = 0, failed = 0, peak_bytes = 0;

	port(const std::string &name, unsigned max_bytes) : name(name), max_bytes(max_bytes)
	{
		fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0)
			throw error("open a packet socket");
		sockaddr_ll to = {};
		to.sll_family = AF_PACKET;
		to.sll_protocol = htons(0x0003); // ETH_P_ALL
		to.sll_ifindex = (int)if_nametoindex(name.c_str());
		if (!to.sll_ifindex)
			throw error("find the device");
		set(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
		// All that waits in the queue is accounted to the socket.
		set(SOL_SOCKET, SO_SNDBUFFORCE, 64 << 20);
		set(SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20);
		if (bind(fd, (sockaddr *)&to, sizeof to))
			throw error("bind");
	}

	// Returns the next frame that arrived; empty: there is none.
	std::vector<uint8_t> receive()
	{
		std::vector<uint8_t> data(most);
		ssize_t n = recv(fd, data.data(), data.size(), MSG_TRUNC);
		if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENETDOWN)
			throw error("receive");
		if (n > (ssize_t)most) { // no port has such frames: offloads are off
			failed++;
			n = 0;
		}
		data.resize(n < 0 ? 0 : (size_t)n);
		return data;
	}

	// Adds the frame to the queue, which may refuse it.
	void send(const std::vector<uint8_t> &data)
	{
		int before = charged();
		if (::send(fd, data.data(), data.size(), MSG_DONTWAIT) < 0) {
			if (errno == ENOBUFS)
				drops++;
			else
				failed++;
			return;
		}
		sent++;
		int cost = charged() - before;
		unsigned &known = cost_of[data.size()];
		if (cost > (int)known) // less, if the queue sent a frame meanwhile
			known = (unsigned)cost;
		queued.push_back({(unsigned)data.size(), known});
		bytes += data.size();
		costs += known;
		uint64_t now = backlog();
		peak_bytes = now > peak_bytes ? now : peak_bytes;
	}

	// Returns the bytes in the queue. The kernel says how much memory of the socket's frames waits (SIOCOUTQ), without a lock
	// that other processes hold: the oldest frames that do not fit into it have left.
	uint64_t backlog()
	{
		if (queued.empty())
			return 0;
		uint64_t wait = (uint64_t)charged();
		while (!queued.empty() && (wait == 0 || costs - queued.front().cost >= wait)) {
			bytes -= queued.front().bytes;
			costs -= queued.front().cost;
			queued.pop_front();
		}
		return bytes;
	}

private:
	struct waiting {
		unsigned bytes, cost;
	};
	std::deque<waiting> queued; // as far as is known
	uint64_t bytes = 0, costs = 0;
	std::array<unsigned, most + 1> cost_of = {}; // of a frame by its length: its memory in the kernel

	int charged()
	{
		int n = 0;
		if (ioctl(fd, SIOCOUTQ, &n))
			throw error("read the queue");
		return n;
	}

	void set(int level, int option, int value)
	{
		if (setsockopt(fd, level, option, &value, sizeof value))
			throw error("set option " + std::to_string(option));
	}

	std::runtime_error error(const std::string &what) { return std::runtime_error(name + ": " + what + ": " + strerror(errno)); }
};

#endif
