// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The programs at both ends of a connection that carries one flow, as in sim/traffic_conn.go and lab/traffic. A flow begins with connect(), on either side, and is complete when the receiving program has its last byte. The
// receiving side closes first.
#ifndef WEIR_VALIDATE_TRANSFER_H
#define WEIR_VALIDATE_TRANSFER_H

#include "input.h"
#include "socket.h"

#include <algorithm>
#include <functional>
#include <iostream>

// Ports. Those of the clients all differ, so that a port identifies its flow.
constexpr uint16_t serverPort = 5001, firstClientPort = 10240;

class Transfer {
public:
	// ended is called once, when a flow that has a size is complete or its connection failed.
	Transfer(const Input &in, size_t index, ns3::Ptr<ns3::Node> client, ns3::Ipv4Address server, std::function<void()> ended)
		: m_in(in), m_spec(in.flows[index]), m_index(index), m_clientNode(client), m_server(server), m_ended(ended) {}

	void Start() {
		using namespace ns3;
		m_client = CountingSocket::Create(m_clientNode, m_in);
		m_client->SetConnectCallback(MakeCallback(&Transfer::Connected, this), MakeCallback(&Transfer::Failed, this));
		Attach(m_client);
		m_client->Bind(InetSocketAddress(Ipv4Address::GetAny(), uint16_t(firstClientPort + m_index)));
		m_client->Connect(InetSocketAddress(m_server, serverPort));
	}

	// Accepted passes the server's end to the flow.
	void Accepted(ns3::Ptr<ns3::Socket> s) {
		m_serverEnd = ns3::DynamicCast<CountingSocket>(s);
		Attach(s);
	}

	// Write writes the flow as a line. end is the end of the run, for a flow in progress.
	void Write(std::ostream &out, int64_t end) const {
		uint32_t timeouts = 0;
		for (const ns3::Ptr<CountingSocket> &s : {m_client, m_serverEnd})
			timeouts += s ? s->Timeouts() : 0;
		const bool done = m_over ? !m_failed : m_spec.bytes == 0;
		out << "{\"flow\":" << m_index << ",\"start_ns\":" << m_spec.start_ns << ",\"end_ns\":" << (m_over ? m_end : end)
			<< ",\"done\":" << (done ? "true" : "false") << ",\"bytes\":" << m_received << ",\"timeouts\":" << timeouts
			<< ",\"delivered\":[";
		const char *before = "";
		for (const auto &[bin, bytes] : m_delivered) {
			out << before << "[" << bin << "," << bytes << "]";
			before = ",";
		}
		out << "]}\n";
	}

private:
	void Attach(ns3::Ptr<ns3::Socket> s) {
		using namespace ns3;
		s->SetRecvCallback(MakeCallback(&Transfer::Readable, this));
		s->SetSendCallback(MakeCallback(&Transfer::Writable, this));
		s->SetCloseCallbacks(MakeCallback(&Transfer::PeerClosed, this), MakeCallback(&Transfer::Failed, this));
	}

	void Connected(ns3::Ptr<ns3::Socket> s) {
		if (m_spec.pull)
			s->Send(ns3::Create<ns3::Packet>(m_in.request_bytes));
		else
			Fill(s);
	}

	// Readable reads what has arrived: data, or the request of a pull.
	void Readable(ns3::Ptr<ns3::Socket> s) {
		uint64_t n = 0;
		for (ns3::Ptr<ns3::Packet> p; (p = s->Recv()) && p->GetSize() > 0;)
			n += p->GetSize();
		if (GetsData(s)) {
			Received(s, n);
			return;
		}
		m_request += n;
		if (m_request >= uint64_t(m_in.request_bytes))
			Fill(s);
	}

	void Received(ns3::Ptr<ns3::Socket> s, uint64_t n) {
		if (n == 0 || m_over)
			return;
		const int64_t now = ns3::Simulator::Now().GetNanoSeconds();
		m_received += n;
		if (m_delivered.empty() || m_delivered.back().first != now / m_in.bin_ns)
			m_delivered.push_back({now / m_in.bin_ns, 0});
		m_delivered.back().second += n;
		if (m_spec.bytes > 0 && m_received >= m_spec.bytes) {
			Over(false);
			ns3::Simulator::ScheduleNow(&Transfer::Close, this, s);
		}
	}

	// Writable is called at both ends.
	void Writable(ns3::Ptr<ns3::Socket> s, uint32_t) {
		if (m_writing && !GetsData(s))
			Fill(s);
	}

	bool GetsData(ns3::Ptr<ns3::Socket> s) const { return m_spec.pull == (s == m_client); }

	// Fill writes as much as the socket accepts. A flow without an end is written in full segments.
	void Fill(ns3::Ptr<ns3::Socket> s) {
		m_writing = true;
		while (m_spec.bytes == 0 || m_written < m_spec.bytes) {
			uint64_t n = std::min<uint64_t>(s->GetTxAvailable(), 64 * m_in.segment_bytes);
			n = m_spec.bytes == 0 ? n / m_in.segment_bytes * m_in.segment_bytes : std::min(n, m_spec.bytes - m_written);
			const int sent = n > 0 ? s->Send(ns3::Create<ns3::Packet>(uint32_t(n))) : 0;
			if (sent <= 0)
				return;
			m_written += sent;
		}
		m_writing = false;
	}

	// Not in a callback of the socket, which continues with its state when the callback returns.
	void PeerClosed(ns3::Ptr<ns3::Socket> s) { ns3::Simulator::ScheduleNow(&Transfer::Close, this, s); }
	void Close(ns3::Ptr<ns3::Socket> s) {
		bool &closed = s == m_client ? m_clientClosed : m_serverClosed;
		if (!closed)
			s->Close();
		closed = true;
	}

	void Failed(ns3::Ptr<ns3::Socket>) {
		if (!m_over)
			Over(true);
	}

	void Over(bool failed) {
		m_over = true;
		m_failed = failed;
		m_end = ns3::Simulator::Now().GetNanoSeconds();
		if (m_spec.bytes > 0)
			m_ended();
	}

	const Input &m_in;
	const FlowSpec &m_spec;
	const size_t m_index;
	ns3::Ptr<ns3::Node> m_clientNode;
	ns3::Ipv4Address m_server;
	std::function<void()> m_ended;
	ns3::Ptr<CountingSocket> m_client, m_serverEnd;
	bool m_writing = false, m_over = false, m_failed = false, m_clientClosed = false, m_serverClosed = false;
	uint64_t m_request = 0, m_written = 0, m_received = 0;
	int64_t m_end = 0;
	std::vector<std::pair<int64_t, int64_t>> m_delivered; // bin, bytes
};

#endif
