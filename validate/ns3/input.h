// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Input of the program: one `key value` a line, each key once, then the flows in their order:
//
//   flow SENDER pull|push START_NS BYTES      SENDER is from 0; BYTES 0: until the end of the run
//
// validate/scenario.go writes it from an experiment file. Units are in the keys.
#ifndef WEIR_VALIDATE_INPUT_H
#define WEIR_VALIDATE_INPUT_H

#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// FlowSpec is one flow of the schedule.
struct FlowSpec {
	uint32_t sender;  // index of the host that sends the data
	bool pull;        // the receiver connects, sends a request of 64 bytes and receives the data
	int64_t start_ns; // connect()
	uint64_t bytes;   // 0: as much as possible until the end
};

// Input is a whole scenario: senders, one switch, one receiver.
struct Input {
	int64_t senders, rate_bps, delay_ns;     // every link; delay is one way
	int64_t limit_bytes;                     // of the bottleneck's queue discipline, IP packets
	int64_t threshold_bytes;                 // RED marks at and above it; 0: a FIFO
	int64_t other_limit_packets;             // of every other queue
	int64_t frame_bytes;                     // added to an IP packet in reported bytes: an Ethernet header
	int64_t segment_bytes, initial_window;   // payload of a full segment; segments
	int64_t min_rto_ns, initial_rto_ns, granularity_ns;
	int64_t ack_every, delayed_ack_ns;       // a segment that is not the ack_every-th waits that long
	int64_t sack, timestamps, ecn;           // 0 or 1
	int64_t receive_buffer_bytes, send_buffer_bytes;
	int64_t request_bytes;                   // of a pull
	int64_t duration_ns, bin_ns, step_ns;    // of the run; of delivered bytes; of the queue's mean
	std::string control, recovery;           // TypeIds
	std::vector<FlowSpec> flows;
};

// readInput reads a file. It throws an error if the file is invalid.
inline Input readInput(const std::string &path) {
	Input in{};
	std::map<std::string, int64_t *> numbers = {
		{"senders", &in.senders}, {"rate_bps", &in.rate_bps}, {"delay_ns", &in.delay_ns},
		{"limit_bytes", &in.limit_bytes}, {"threshold_bytes", &in.threshold_bytes},
		{"other_limit_packets", &in.other_limit_packets}, {"frame_bytes", &in.frame_bytes},
		{"segment_bytes", &in.segment_bytes}, {"initial_window", &in.initial_window},
		{"min_rto_ns", &in.min_rto_ns}, {"initial_rto_ns", &in.initial_rto_ns}, {"granularity_ns", &in.granularity_ns},
		{"ack_every", &in.ack_every}, {"delayed_ack_ns", &in.delayed_ack_ns},
		{"sack", &in.sack}, {"timestamps", &in.timestamps}, {"ecn", &in.ecn},
		{"receive_buffer_bytes", &in.receive_buffer_bytes}, {"send_buffer_bytes", &in.send_buffer_bytes},
		{"request_bytes", &in.request_bytes},
		{"duration_ns", &in.duration_ns}, {"bin_ns", &in.bin_ns}, {"step_ns", &in.step_ns},
	};
	std::map<std::string, std::string *> names = {{"control", &in.control}, {"recovery", &in.recovery}};
	std::ifstream file(path);
	if (!file)
		throw std::runtime_error(path + ": cannot be read");
	std::string text;
	for (int line = 1; std::getline(file, text); line++) {
		std::istringstream words(text);
		std::string key, side;
		words >> key;
		bool ok = false;
		if (auto n = numbers.find(key); n != numbers.end()) {
			ok = bool(words >> *n->second);
			numbers.erase(n);
		} else if (auto s = names.find(key); s != names.end()) {
			ok = bool(words >> *s->second);
			names.erase(s);
		} else if (key == "flow") {
			FlowSpec f{};
			ok = bool(words >> f.sender >> side >> f.start_ns >> f.bytes) && (side == "pull" || side == "push") &&
				f.sender < in.senders;
			f.pull = side == "pull";
			in.flows.push_back(f);
		}
		if (!ok || words >> key)
			throw std::runtime_error(path + ":" + std::to_string(line) + ": not understood: " + text);
	}
	if (!numbers.empty() || !names.empty())
		throw std::runtime_error(path + ": no " + (names.empty() ? numbers.begin()->first : names.begin()->first));
	return in;
}

#endif
