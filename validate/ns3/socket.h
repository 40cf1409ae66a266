// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// ns-3's TCP with a counter of retransmission timeouts. A trace of the congestion state is not sufficient: a
// second timeout in a row leaves the state at CA_LOSS.
#ifndef WEIR_VALIDATE_SOCKET_H
#define WEIR_VALIDATE_SOCKET_H

#include "input.h"

#include "ns3/internet-module.h"

class CountingSocket : public ns3::TcpSocketBase {
public:
	static ns3::TypeId GetTypeId() {
		static ns3::TypeId id = ns3::TypeId("weir::CountingSocket")
			.SetParent<ns3::TcpSocketBase>()
			.SetGroupName("Internet")
			.AddConstructor<CountingSocket>();
		return id;
	}
	ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }

	CountingSocket() = default;
	// A listener's copy for a new connection starts at 0.
	CountingSocket(const CountingSocket &other) : ns3::TcpSocketBase(other) {}

	// Timeouts returns the RTO events so far: of data, and of SYN and SYN-ACK. Those of a FIN do not count: the flow
	// has ended.
	uint32_t Timeouts() const { return m_timeouts; }

	// Create creates a socket of a node as TcpL4Protocol::CreateSocket does.
	static ns3::Ptr<CountingSocket> Create(ns3::Ptr<ns3::Node> node, const Input &in) {
		using namespace ns3;
		Ptr<TcpL4Protocol> tcp = node->GetObject<TcpL4Protocol>();
		Ptr<CountingSocket> s = CreateObject<CountingSocket>();
		s->SetNode(node);
		s->SetTcp(tcp);
		s->SetRtt(CreateObject<RttMeanDeviation>());
		s->SetCongestionControlAlgorithm(ObjectFactory(in.control).Create<TcpCongestionOps>());
		s->SetRecoveryAlgorithm(ObjectFactory(in.recovery).Create<TcpRecoveryOps>());
		tcp->AddSocket(s);
		return s;
	}

protected:
	ns3::Ptr<ns3::TcpSocketBase> Fork() override { return ns3::CopyObject<CountingSocket>(this); }

	// Timeouts that TcpSocketBase ignores, or that only repeat a FIN, do not count.
	void ReTxTimeout() override {
		if (m_state != CLOSED && m_state != TIME_WAIT && m_state != SYN_SENT && m_txBuffer->Size() > 0)
			m_timeouts++;
		ns3::TcpSocketBase::ReTxTimeout();
	}

	// The timer of a handshake calls this again. A SYN-ACK that answers a repeated SYN is not a timeout: its timer
	// still runs.
	void SendEmptyPacket(uint8_t flags) override {
		if ((flags & ns3::TcpHeader::SYN) && m_synCount < m_synRetries && m_retxEvent.IsExpired())
			m_timeouts++;
		ns3::TcpSocketBase::SendEmptyPacket(flags);
	}

private:
	uint32_t m_timeouts = 0;
};

#endif
