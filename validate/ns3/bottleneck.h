// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Measurements at the bottleneck: the port of the switch towards the receiver. A packet is in the port from the
// time the queue discipline accepts it until its last bit has left, as in the simulator. ns-3's own figures do not
// include the two packets in the device, one being sent and one after it.
#ifndef WEIR_VALIDATE_BOTTLENECK_H
#define WEIR_VALIDATE_BOTTLENECK_H

#include "input.h"

#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/traffic-control-module.h"

#include <functional>
#include <iostream>

// pppBytes is the size of the header of a packet in a point-to-point device; other packets do not have it.
constexpr int64_t pppBytes = 2;

class Bottleneck {
public:
	// flowOf returns the index of a packet's flow, or -1.
	Bottleneck(const Input &in, std::function<int64_t(ns3::Ptr<const ns3::Packet>)> flowOf) : m_in(in), m_flowOf(flowOf) {}

	void Watch(ns3::Ptr<ns3::QueueDisc> queue, ns3::Ptr<ns3::NetDevice> device) {
		using namespace ns3;
		queue->TraceConnectWithoutContext("Enqueue", MakeCallback(&Bottleneck::Came, this));
		queue->TraceConnectWithoutContext("Mark", MakeCallback(&Bottleneck::Marked, this));
		queue->TraceConnectWithoutContext("DropBeforeEnqueue", MakeCallback(&Bottleneck::Dropped, this));
		device->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Bottleneck::Left, this));
		Simulator::Schedule(NanoSeconds(m_in.step_ns), &Bottleneck::Step, this);
	}

	// WatchOther counts drops at a queue that should have none.
	void WatchOther(ns3::Ptr<ns3::QueueDisc> queue) {
		queue->TraceConnectWithoutContext("Drop", ns3::MakeCallback(&Bottleneck::DroppedElsewhere, this));
	}

	// Write writes drops, one a line, and the queue over time: its mean in each step, and the bytes sent and packets
	// marked by the end of the step.
	void Write(std::ostream &out) {
		for (const Drop &d : m_drops)
			out << "{\"drop_ns\":" << d.at << ",\"flow\":" << d.flow << ",\"bytes\":" << d.bytes << ",\"law\":"
				<< (d.law ? "true" : "false") << "}\n";
		out << "{\"step_ns\":" << m_in.step_ns << ",\"mean\":";
		WriteList(out, m_means);
		out << ",\"sent\":";
		WriteList(out, m_sents);
		out << ",\"marks\":";
		WriteList(out, m_markss);
		out << ",\"drops_elsewhere\":" << m_elsewhere << "}\n";
	}

	static void WriteList(std::ostream &out, const std::vector<int64_t> &list) {
		const char *before = "[";
		for (int64_t v : list) {
			out << before << v;
			before = ",";
		}
		out << (list.empty() ? "[]" : "]");
	}

private:
	struct Drop {
		int64_t at, flow, bytes;
		bool law; // dropped by RED; otherwise the buffer was full
	};

	void Came(ns3::Ptr<const ns3::QueueDiscItem> item) { Change(item->GetSize() + m_in.frame_bytes); }

	void Left(ns3::Ptr<const ns3::Packet> packet) {
		const int64_t frame = int64_t(packet->GetSize()) - pppBytes + m_in.frame_bytes;
		m_sent += frame;
		Change(-frame);
	}

	void Marked(ns3::Ptr<const ns3::QueueDiscItem>, const char *) { m_marks++; }

	// The packet of an item that was not accepted has no IP header yet.
	void Dropped(ns3::Ptr<const ns3::QueueDiscItem> item, const char *reason) {
		const bool law = std::string(reason) == ns3::RedQueueDisc::FORCED_DROP;
		m_drops.push_back({Now(), m_flowOf(item->GetPacket()), item->GetSize() + m_in.frame_bytes, law});
	}

	void DroppedElsewhere(ns3::Ptr<const ns3::QueueDiscItem>) { m_elsewhere++; }

	// Change adds to the backlog, after adding the old value to its integral over time.
	void Change(int64_t bytes) {
		m_integral += m_backlog * (Now() - m_since);
		m_since = Now();
		m_backlog += bytes;
	}

	void Step() {
		Change(0);
		m_means.push_back((m_integral + m_in.step_ns / 2) / m_in.step_ns);
		m_sents.push_back(m_sent);
		m_markss.push_back(m_marks);
		m_integral = 0;
		ns3::Simulator::Schedule(ns3::NanoSeconds(m_in.step_ns), &Bottleneck::Step, this);
	}

	static int64_t Now() { return ns3::Simulator::Now().GetNanoSeconds(); }

	const Input &m_in;
	std::function<int64_t(ns3::Ptr<const ns3::Packet>)> m_flowOf;
	int64_t m_backlog = 0, m_since = 0;
	int64_t m_integral = 0; // byte x ns since the last step: below 2^63 for a gigabyte over 9 seconds
	int64_t m_sent = 0, m_marks = 0, m_elsewhere = 0;
	std::vector<int64_t> m_means, m_sents, m_markss;
	std::vector<Drop> m_drops;
};

#endif
