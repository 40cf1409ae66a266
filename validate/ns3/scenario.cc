// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// scenario FILE: one run of a dumbbell in ns-3, for `make validate`. N senders and one receiver are connected to one
// switch (a router: ns-3's bridge needs CSMA); the switch's port towards the receiver is the bottleneck. FILE is written
// by validate/scenario.go; input.h describes its format. It prints JSON lines: every flow, every drop at the
// bottleneck, its queue over time.
//
//   input.h       the input
//   socket.h      ns-3's TCP with a counter of timeouts
//   transfer.h    the programs at both ends of a flow
//   bottleneck.h  the measurements at the port
#include "bottleneck.h"
#include "input.h"
#include "socket.h"
#include "transfer.h"

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <iostream>
#include <memory>

using namespace ns3;

namespace {

// setTcp makes the settings that are not arguments of a socket.
void setTcp(const Input &in) {
	const std::string socket = "ns3::TcpSocket::", base = "ns3::TcpSocketBase::";
	Config::SetDefault(socket + "SegmentSize", UintegerValue(in.segment_bytes));
	Config::SetDefault(socket + "InitialCwnd", UintegerValue(in.initial_window));
	Config::SetDefault(socket + "ConnTimeout", TimeValue(NanoSeconds(in.initial_rto_ns)));
	Config::SetDefault(socket + "DelAckCount", UintegerValue(in.ack_every));
	Config::SetDefault(socket + "DelAckTimeout", TimeValue(NanoSeconds(in.delayed_ack_ns)));
	Config::SetDefault(socket + "DataRetries", UintegerValue(15));
	Config::SetDefault(socket + "SndBufSize", UintegerValue(in.send_buffer_bytes));
	Config::SetDefault(socket + "RcvBufSize", UintegerValue(in.receive_buffer_bytes));
	Config::SetDefault(socket + "TcpNoDelay", BooleanValue(true));
	Config::SetDefault(base + "MinRto", TimeValue(NanoSeconds(in.min_rto_ns)));
	Config::SetDefault(base + "ClockGranularity", TimeValue(NanoSeconds(in.granularity_ns)));
	Config::SetDefault(base + "Sack", BooleanValue(in.sack != 0));
	Config::SetDefault(base + "Timestamp", BooleanValue(in.timestamps != 0));
	Config::SetDefault(base + "UseEcn", StringValue(in.ecn != 0 ? "On" : "Off"));
	Config::SetDefault("ns3::RttEstimator::InitialEstimation", TimeValue(NanoSeconds(in.initial_rto_ns)));
}

// Network is the dumbbell.
struct Network {
	NodeContainer senders, receiver, router;
	std::vector<Ipv4Address> senderAddress;
	Ipv4Address receiverAddress;
};

// queue sets the queue discipline of a device, which itself holds one packet after the one being sent.
Ptr<QueueDisc> queue(Ptr<NetDevice> device, const Input &in, bool bottleneck) {
	TrafficControlHelper tc;
	if (!bottleneck)
		tc.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, in.other_limit_packets)));
	else if (in.threshold_bytes == 0)
		tc.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, in.limit_bytes)));
	else
		// The average is the queue itself (QW 1), and with a single threshold every packet at and above it is
		// marked, without a probability. RED drops packets that it cannot mark.
		tc.SetRootQueueDisc("ns3::RedQueueDisc",
			"MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, in.limit_bytes)),
			"MinTh", DoubleValue(double(in.threshold_bytes)), "MaxTh", DoubleValue(double(in.threshold_bytes)),
			"QW", DoubleValue(1), "Gentle", BooleanValue(false),
			"UseEcn", BooleanValue(true), "UseHardDrop", BooleanValue(false));
	return tc.Install(device).Get(0);
}

// build creates nodes, links and addresses.
Network build(const Input &in, Bottleneck &bottleneck) {
	Network n;
	n.senders.Create(in.senders);
	n.receiver.Create(1);
	n.router.Create(1);
	InternetStackHelper stack;
	stack.SetIpv6StackInstall(false);
	for (const NodeContainer *c : {&n.senders, &n.receiver, &n.router})
		stack.Install(*c);
	PointToPointHelper link;
	link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(in.rate_bps)));
	link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(in.delay_ns)));
	link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
	Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
	for (int64_t i = 0; i <= in.senders; i++) {
		const bool toReceiver = i == in.senders;
		NetDeviceContainer ends = link.Install(toReceiver ? n.receiver.Get(0) : n.senders.Get(i), n.router.Get(0));
		bottleneck.WatchOther(queue(ends.Get(0), in, false));
		Ptr<QueueDisc> port = queue(ends.Get(1), in, toReceiver);
		if (toReceiver)
			bottleneck.Watch(port, ends.Get(1));
		else
			bottleneck.WatchOther(port);
		const Ipv4Address address = addresses.Assign(ends).GetAddress(0);
		addresses.NewNetwork();
		if (toReceiver)
			n.receiverAddress = address;
		else
			n.senderAddress.push_back(address);
	}
	Ipv4GlobalRoutingHelper::PopulateRoutingTables();
	return n;
}

// Run is all flows of a run.
class Run {
public:
	Run(const Input &in, Bottleneck &bottleneck) : m_in(in), m_network(build(in, bottleneck)) {
		for (uint32_t i = 0; i < m_network.senders.GetN(); i++)
			Listen(m_network.senders.Get(i));
		Listen(m_network.receiver.Get(0));
		for (size_t i = 0; i < in.flows.size(); i++) {
			const FlowSpec &f = in.flows[i];
			Ptr<Node> sender = m_network.senders.Get(f.sender);
			m_flows.push_back(std::make_unique<Transfer>(in, i, f.pull ? m_network.receiver.Get(0) : sender,
				f.pull ? m_network.senderAddress[f.sender] : m_network.receiverAddress, [this] { Ended(); }));
			Simulator::ScheduleWithContext((f.pull ? m_network.receiver.Get(0) : sender)->GetId(), NanoSeconds(f.start_ns),
				&Transfer::Start, m_flows.back().get());
			m_left++;
		}
	}

	void Write(std::ostream &out) const {
		for (const auto &f : m_flows)
			f->Write(out, Simulator::Now().GetNanoSeconds());
	}

private:
	void Listen(Ptr<Node> node) {
		Ptr<CountingSocket> s = CountingSocket::Create(node, m_in);
		s->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address &>(), MakeCallback(&Run::Accept, this));
		s->Bind(InetSocketAddress(Ipv4Address::GetAny(), serverPort));
		s->Listen();
		m_listeners.push_back(s);
	}

	void Accept(Ptr<Socket> s, const Address &from) {
		m_flows.at(InetSocketAddress::ConvertFrom(from).GetPort() - firstClientPort)->Accepted(s);
	}

	// Ended: the run ends when every flow has. A flow without a size never ends.
	void Ended() {
		if (--m_left == 0)
			Simulator::Stop();
	}

	const Input &m_in;
	Network m_network;
	std::vector<Ptr<CountingSocket>> m_listeners;
	std::vector<std::unique_ptr<Transfer>> m_flows;
	size_t m_left = 0;
};

// flowOf finds the flow of a TCP segment by its client's port; -1: none.
int64_t flowOf(Ptr<const Packet> p) {
	TcpHeader h;
	p->PeekHeader(h);
	const int64_t port = std::max(h.GetSourcePort(), h.GetDestinationPort());
	return port >= firstClientPort ? port - firstClientPort : -1;
}

} // namespace

int main(int argc, char **argv) {
	if (argc != 2) {
		std::cerr << "usage: scenario FILE\n";
		return 2;
	}
	try {
		const Input in = readInput(argv[1]);
		if (in.flows.size() > 65536 - firstClientPort)
			throw std::runtime_error("more flows than client ports");
		setTcp(in);
		Bottleneck bottleneck(in, flowOf);
		Run run(in, bottleneck);
		Simulator::Stop(NanoSeconds(in.duration_ns));
		Simulator::Run();
		run.Write(std::cout);
		bottleneck.Write(std::cout);
		Simulator::Destroy();
	} catch (const std::exception &e) {
		std::cerr << "scenario: " << e.what() << "\n";
		return 1;
	}
	return 0;
}
