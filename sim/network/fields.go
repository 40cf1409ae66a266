package network

// The packet's interface outside this package. Every method that reads or sets a field is inlined.

// mostBlocks is the number of SACK blocks that a header has room for, without other options (RFC 2018, section 3).
const mostBlocks = 4

// Src returns the host that sent the packet.
func (pk *Packet) Src() NodeID { return pk.src }

// Dst returns the host that the packet goes to.
func (pk *Packet) Dst() NodeID { return pk.dst }

// Bytes returns the length of the frame from the Ethernet header on, which buffers count. It takes more on the line:
// see Port.
func (pk *Packet) Bytes() int32 { return pk.bytes }

// Hash returns the hash of the five-tuple, for ECMP: FlowHash. It differs by direction.
func (pk *Packet) Hash() uint32 { return pk.hash }

// Conn returns the number of the connection, for the stack and for tables of connections. Numbers are reused.
func (pk *Packet) Conn() int32 { return pk.conn }

// Seq returns the sequence number of the first byte (RFC 9293).
func (pk *Packet) Seq() uint32 { return pk.seq }

// Ack returns the acknowledgement number.
func (pk *Packet) Ack() uint32 { return pk.ack }

// Payload returns the bytes of data.
func (pk *Packet) Payload() int32 { return pk.payload }

// SrcPort returns the port of the sender.
func (pk *Packet) SrcPort() uint16 { return pk.srcPort }

// DstPort returns the port of the receiver.
func (pk *Packet) DstPort() uint16 { return pk.dstPort }

// Window returns the window field of the header, not scaled.
func (pk *Packet) Window() uint16 { return pk.window }

// Flags returns the flags, FIN to AE.
func (pk *Packet) Flags() uint16 { return pk.flags }

// ECN returns the ECN field: NotECT, ECT1, ECT0 or CE.
func (pk *Packet) ECN() uint8 { return pk.ecn }

// Priority returns 0, the lowest, to 7. It has no effect at ports with one queue.
func (pk *Packet) Priority() uint8 { return pk.priority }

// Proto returns TCP, UDP or MarkMessage.
func (pk *Packet) Proto() uint8 { return pk.proto }

// ToAcceptor reports whether the packet goes to the end that accepted the connection.
func (pk *Packet) ToAcceptor() bool { return pk.toAcceptor }

// Reserved returns the reserved bits of the TCP header.
func (pk *Packet) Reserved() uint8 { return pk.reserved }

// Scale returns the window scale option of a SYN; -1: no such option.
func (pk *Packet) Scale() int8 { return pk.scale }

// MSS returns the MSS option of a SYN, in bytes; 0: no such option.
func (pk *Packet) MSS() uint16 { return pk.mss }

// SACKPermitted reports whether a SYN has the option SACK-permitted.
func (pk *Packet) SACKPermitted() bool { return pk.sackPermitted }

// Feedback returns where Total and Marked are: NoFeedback, FeedbackOption or FeedbackAlone.
func (pk *Packet) Feedback() uint8 { return pk.feedback }

// Total returns the bytes of data that reached a virtual switch, modulo 2^32. It is valid only with Feedback.
func (pk *Packet) Total() uint32 { return pk.total }

// Marked returns the bytes of Total that were marked, and the packets of a MarkMessage. It is valid only with Feedback, or there.
func (pk *Packet) Marked() uint32 { return pk.marked }

// IPFlag returns the reserved flag of the IPv4 header (RFC 791, RFC 3514).
func (pk *Packet) IPFlag() bool { return pk.ipFlag }

// Tag returns a value that the sender may use for measuring; no node reads it.
func (pk *Packet) Tag() uint64 { return pk.tag }

// NBlocks returns the number of SACK blocks, 0 to 4.
func (pk *Packet) NBlocks() uint8 { return pk.nBlocks }

// Blocks returns the SACK blocks (RFC 2018). The slice is part of the packet.
func (pk *Packet) Blocks() []Block { return pk.blocks[:min(pk.nBlocks, mostBlocks)] }

// AddBlock adds a SACK block after the others. It ignores a fifth.
func (pk *Packet) AddBlock(b Block) {
	if pk.nBlocks < mostBlocks {
		pk.blocks[pk.nBlocks] = b
		pk.nBlocks++
	}
}

// SameFlow makes pk a packet of the connection and the direction that like belongs to.
func (pk *Packet) SameFlow(like *Packet) {
	pk.src, pk.dst, pk.srcPort, pk.dstPort, pk.proto = like.src, like.dst, like.srcPort, like.dstPort, like.proto
	pk.conn, pk.toAcceptor, pk.hash, pk.priority = like.conn, like.toAcceptor, like.hash, like.priority
}

// ReverseFlow makes pk a packet of the connection that like belongs to, in the other direction.
func (pk *Packet) ReverseFlow(like *Packet) {
	pk.src, pk.dst, pk.srcPort, pk.dstPort, pk.proto = like.dst, like.src, like.dstPort, like.srcPort, like.proto
	pk.conn, pk.toAcceptor, pk.priority = like.conn, !like.toAcceptor, like.priority
	pk.hash = FlowHash(pk.src, pk.dst, pk.srcPort, pk.dstPort, pk.proto)
}

// The setters. Meaning, unit and range are those of the method without Set.

// SetEnds sets Src, Dst, SrcPort and DstPort.
func (pk *Packet) SetEnds(src, dst NodeID, srcPort, dstPort uint16) {
	pk.src, pk.dst, pk.srcPort, pk.dstPort = src, dst, srcPort, dstPort
}

// SetSrc sets Src.
func (pk *Packet) SetSrc(v NodeID) { pk.src = v }

// SetDst sets Dst.
func (pk *Packet) SetDst(v NodeID) { pk.dst = v }

// SetBytes sets Bytes.
func (pk *Packet) SetBytes(v int32) { pk.bytes = v }

// SetHash sets Hash.
func (pk *Packet) SetHash(v uint32) { pk.hash = v }

// SetConn sets Conn.
func (pk *Packet) SetConn(v int32) { pk.conn = v }

// SetSeq sets Seq.
func (pk *Packet) SetSeq(v uint32) { pk.seq = v }

// SetAck sets Ack.
func (pk *Packet) SetAck(v uint32) { pk.ack = v }

// SetPayload sets Payload.
func (pk *Packet) SetPayload(v int32) { pk.payload = v }

// SetSrcPort sets SrcPort.
func (pk *Packet) SetSrcPort(v uint16) { pk.srcPort = v }

// SetDstPort sets DstPort.
func (pk *Packet) SetDstPort(v uint16) { pk.dstPort = v }

// SetWindow sets Window.
func (pk *Packet) SetWindow(v uint16) { pk.window = v }

// SetFlags sets Flags.
func (pk *Packet) SetFlags(v uint16) { pk.flags = v }

// SetECN sets ECN.
func (pk *Packet) SetECN(v uint8) { pk.ecn = v }

// SetPriority sets Priority.
func (pk *Packet) SetPriority(v uint8) { pk.priority = v }

// SetProto sets Proto.
func (pk *Packet) SetProto(v uint8) { pk.proto = v }

// SetToAcceptor sets ToAcceptor.
func (pk *Packet) SetToAcceptor(v bool) { pk.toAcceptor = v }

// SetReserved sets Reserved.
func (pk *Packet) SetReserved(v uint8) { pk.reserved = v }

// SetScale sets Scale.
func (pk *Packet) SetScale(v int8) { pk.scale = v }

// SetMSS sets MSS.
func (pk *Packet) SetMSS(v uint16) { pk.mss = v }

// SetSACKPermitted sets SACKPermitted.
func (pk *Packet) SetSACKPermitted(v bool) { pk.sackPermitted = v }

// SetFeedback sets Feedback.
func (pk *Packet) SetFeedback(v uint8) { pk.feedback = v }

// SetTotal sets Total.
func (pk *Packet) SetTotal(v uint32) { pk.total = v }

// SetMarked sets Marked.
func (pk *Packet) SetMarked(v uint32) { pk.marked = v }

// SetIPFlag sets IPFlag.
func (pk *Packet) SetIPFlag(v bool) { pk.ipFlag = v }

// SetTag sets Tag.
func (pk *Packet) SetTag(v uint64) { pk.tag = v }
