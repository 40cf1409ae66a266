// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A switch of the lab whose data path is the Verilated FairSwitch (docs/fairswitch-rtl.md). It runs in the namespace of the
// switch: frames come from the devices' packet sockets, pass through the block, and enter the queue of the device that they
// leave by. The block's clock follows the time of the machine; the largest lag is counted.
//
//	weir-rtl-switch --control SOCKET [--clock HZ] --port DEVICE=QUEUE_BYTES... --to MAC=PORT...
//
// PORT counts from 0. A MAC that is not in the table is dropped, a group address goes to all other ports. "ready" on the output:
// it forwards. The control socket (SOCK_SEQPACKET) answers text:
//
//	w ADDRESS VALUE   write a register      ok
//	r ADDRESS         read a register       its value
//	reset             counters begin at 0   ok
//	stats             counters              JSON
#include <poll.h>
#include <sys/prctl.h>
#include <sys/un.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>

#include "fairswitch_block.h"
#include "port.h"

double sc_time_stamp() { return 0; }

namespace {

constexpr unsigned idle_ns = 100000, busy_ns = 20000; // between two looks at the clock
constexpr size_t most_clients = 8;                    // of the control socket
constexpr size_t most_waiting = 4096;                 // frames before the block
constexpr uint64_t rebase_ns = 100000000;             // a lag that is not made up for

struct options {
	std::string control;
	uint64_t clock_hz = 1250000;
	std::vector<std::pair<std::string, unsigned>> ports;
	std::map<uint64_t, unsigned> table;
};

[[noreturn]] void usage(const std::string &why)
{
	fprintf(stderr, "weir-rtl-switch: %s\n", why.c_str());
	exit(2);
}

uint64_t number(const std::string &text, int base = 10)
{
	char *end;
	uint64_t n = strtoull(text.c_str(), &end, base);
	if (text.empty() || *end)
		usage("\"" + text + "\" is no number");
	return n;
}

uint64_t mac_of(const uint8_t *at)
{
	uint64_t mac = 0;
	for (int i = 0; i < 6; i++)
		mac = mac << 8 | at[i];
	return mac;
}

options parse(int argc, char **argv)
{
	options o;
	for (int i = 1; i < argc; i += 2) {
		std::string key = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
		size_t equal = value.find('=');
		std::string left = value.substr(0, equal), right = equal == std::string::npos ? "" : value.substr(equal + 1);
		if (key == "--control") {
			o.control = value;
		} else if (key == "--clock") {
			o.clock_hz = number(value);
		} else if (key == "--port") {
			o.ports.push_back({left, (unsigned)number(right)});
		} else if (key == "--to") {
			std::string digits;
			for (char c : left)
				if (c != ':')
					digits += c;
			o.table[number(digits, 16)] = (unsigned)number(right);
		} else {
			usage("option " + key + " is not known");
		}
	}
	if (o.control.empty() || o.ports.empty() || o.ports.size() > QUEUES || !o.clock_hz)
		usage("needs --control, --clock above 0, and 1 to " + std::to_string(QUEUES) + " --port");
	for (auto &entry : o.table)
		if (entry.second >= o.ports.size())
			usage("there is no port " + std::to_string(entry.second));
	return o;
}

uint64_t now_ns()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

class rtl_switch {
public:
	explicit rtl_switch(const options &o) : o(o)
	{
		for (auto &p : o.ports)
			ports.emplace_back(p.first, p.second);
		for (unsigned q = 0; q < QUEUES; q++)
			dut.queue(q, 0, q < ports.size() ? ports[q].max_bytes / 8 : 0);
		listen_at(o.control);
		start = now_ns();
	}

	[[noreturn]] void run()
	{
		for (;;) {
			wait();
			advance();
			for (unsigned i = 0; i < ports.size(); i++)
				receive(i);
			answer();
		}
	}

private:
	const options &o;
	block dut;
	std::deque<port> ports;
	int listener = -1;
	std::vector<int> clients;
	uint64_t start, from = 0; // cycle `from` is at this time
	uint64_t lag_most = 0, rebased = 0, received = 0, unknown = 0, overflows = 0;

	auto leave()
	{
		return [this](const frame &f) {
			ports[f.out].send(f.data);
			measure(f.out);
		};
	}

	void measure(unsigned q) { dut.queue(q, (unsigned)(ports[q].backlog() / 8), ports[q].max_bytes / 8); }

	void wait()
	{
		std::vector<pollfd> fds;
		for (auto &p : ports)
			fds.push_back({p.fd, POLLIN, 0});
		fds.push_back({listener, POLLIN, 0});
		for (int client : clients)
			fds.push_back({client, POLLIN, 0});
		timespec limit = {0, dut.busy() ? busy_ns : idle_ns};
		ppoll(fds.data(), fds.size(), &limit, nullptr);
	}

	uint64_t due(uint64_t now) const { return from + (uint64_t)((unsigned __int128)(now - start) * o.clock_hz / 1000000000); }

	// Runs the block up to the time of the machine.
	void advance()
	{
		uint64_t now = now_ns(), until = due(now);
		if (until <= dut.cycles) // registers were written, which takes cycles
			return;
		uint64_t lag = (uint64_t)((unsigned __int128)(until - dut.cycles) * 1000000000 / o.clock_hz);
		lag_most = lag > lag_most ? lag : lag_most;
		if (lag > rebase_ns) {
			rebased++;
			start = now;
			from = until = dut.cycles;
		}
		for (unsigned q = 0; q < ports.size(); q++)
			measure(q);
		while (dut.cycles < until)
			dut.cycle(leave());
	}

	void receive(unsigned in)
	{
		for (;;) {
			std::vector<uint8_t> data = ports[in].receive();
			if (data.size() < 14)
				return;
			received++;
			if (data[0] & 1) {
				for (unsigned out = 0; out < ports.size(); out++)
					if (out != in)
						push(frame{data, in, out});
				continue;
			}
			auto to = o.table.find(mac_of(data.data()));
			if (to == o.table.end() || to->second == in) {
				unknown++;
				continue;
			}
			push(frame{std::move(data), in, to->second});
		}
	}

	void push(frame &&f)
	{
		if (dut.waits() >= most_waiting)
			overflows++;
		else
			dut.push(std::move(f));
	}

	// ---- control ----

	void listen_at(const std::string &path)
	{
		sockaddr_un at = {};
		at.sun_family = AF_UNIX;
		if (path.size() >= sizeof at.sun_path)
			usage("the path of the control socket is too long");
		strcpy(at.sun_path, path.c_str());
		listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (listener < 0 || bind(listener, (sockaddr *)&at, sizeof at) || listen(listener, 4))
			throw std::runtime_error(path + ": " + strerror(errno));
	}

	void answer()
	{
		int fresh = clients.size() < most_clients ? accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
		if (fresh >= 0)
			clients.push_back(fresh);
		for (size_t i = 0; i < clients.size();) {
			if (answer(clients[i])) {
				i++;
				continue;
			}
			close(clients[i]);
			clients.erase(clients.begin() + (long)i);
		}
	}

	// Answers a request. Returns false if the client has gone.
	bool answer(int client)
	{
		char text[128];
		ssize_t n = recv(client, text, sizeof text - 1, 0);
		if (n <= 0)
			return n < 0 && (errno == EAGAIN || errno == EINTR);
		text[n] = 0;
		std::string reply = reply_to(text);
		return ::send(client, reply.data(), reply.size(), MSG_NOSIGNAL) >= 0;
	}

	std::string reply_to(const char *text)
	{
		unsigned address, value;
		if (sscanf(text, "w %i %i", &address, &value) == 2) {
			dut.write(address, value, leave());
			return "ok";
		}
		if (sscanf(text, "r %i", &address) == 1)
			return std::to_string(dut.read(address, leave()));
		if (!strcmp(text, "reset")) {
			lag_most = rebased = received = unknown = overflows = 0;
			for (auto &p : ports)
				p.sent = p.drops = p.failed = p.peak_bytes = 0;
			return "ok";
		}
		return !strcmp(text, "stats") ? stats() : "error";
	}

	std::string stats()
	{
		std::string s = "{\"queues\":" + std::to_string(QUEUES) + ",\"clock_hz\":" + std::to_string(o.clock_hz) +
				",\"lag_most_ns\":" + std::to_string(lag_most) + ",\"rebased\":" + std::to_string(rebased) + ",\"received\":" +
				std::to_string(received) + ",\"unknown\":" + std::to_string(unknown) + ",\"overflows\":" +
				std::to_string(overflows) + ",\"ports\":[";
		for (auto &p : ports)
			s += std::string(&p == &ports.front() ? "" : ",") + "{\"device\":\"" + p.name + "\",\"sent\":" + std::to_string(p.sent) +
			     ",\"drops\":" + std::to_string(p.drops) + ",\"failed\":" + std::to_string(p.failed) + ",\"peak_bytes\":" +
			     std::to_string(p.peak_bytes) + "}";
		return s + "]}";
	}
};

} // namespace

int main(int argc, char **argv)
{
	options o = parse(argc, argv);
	try {
		prctl(PR_SET_TIMERSLACK, 1);
		rtl_switch sw(o);
		puts("ready");
		fflush(stdout);
		sw.run();
	} catch (const std::exception &e) {
		fprintf(stderr, "weir-rtl-switch: %s\n", e.what());
		return 1;
	}
}
