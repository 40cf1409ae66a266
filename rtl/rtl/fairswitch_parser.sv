// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Reads headers from a stream of transfers. It never stops the stream: each stage passes a transfer on in each cycle, and keeps what
// it found until the next frame. `found` comes once for each frame, as soon as nothing more can be learned.
//
// All IP and TCP headers begin at 4n - 2 bytes (14 bytes of Ethernet, 4 for a VLAN tag, multiples of 4 behind). So the
// parser reads quads of 4 bytes: quad n is bytes 4n - 2 to 4n + 1 of the frame.
//
//   quad     bytes of the header                quad    bytes of the header
//   3        EtherType in its low half          l4 + 0  ports
//   4, 5     the same behind one or two tags    l4 + 1  sequence number
//   l3 + 0   version, length, TOS, total        l4 + 2  acknowledgement
//   l3 + 1   IPv4 id, fragment; IPv6 length,    l4 + 3  data offset, reserved bits, flags, window
//            next header, hop limit             l4 + 4  checksum, urgent pointer
//   l3 + 2   IPv4 TTL, protocol, checksum       l3 + 4, + 9  the end of an IPv4, IPv6 header without options
`default_nettype none
module fairswitch_parser #(
	parameter int DATA_W = 64,
	parameter int USER_W = 6
) (
	input  wire                clk,
	input  wire                rst,
	input  wire                beat,
	input  wire [DATA_W-1:0]   data,    // byte 0 in the low bits
	input  wire [DATA_W/8-1:0] keep,
	input  wire                last,
	input  wire [USER_W-1:0]   user,
	output reg                 found,
	output reg  [USER_W-1:0]   found_user,
	output reg                 ip4,     // a whole IPv4 header
	output reg                 ip6,
	output reg                 tcp,     // a whole TCP header, its lengths checked
	output reg  [2:0]          l3,      // the first quad of the IP header
	output reg  [4:0]          l4,      // of the TCP header
	output reg  [15:0]         ip_word, // its first two bytes: version, TOS or traffic class
	output reg  [15:0]         ip_check,
	output reg  [15:0]         tcp_word, // data offset, reserved bits, flags
	output reg  [15:0]         window,
	output reg  [15:0]         check,
	output reg  [15:0]         payload  // bytes of TCP payload
);
	localparam int QUADS = DATA_W / 32, QL = $clog2(QUADS);
	localparam [5:0] FAR = 6'd32; // no header reaches quad 32

	if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check
		$error("DATA_W is 64, 128, 256 or 512");
	end

	// ------------------------------------------------------------------ 0: quads
	reg [15:0] carried; // the last two bytes of the transfer before
	reg [5:0] base;     // number of the first quad of the next transfer
	reg begins;         // the next transfer begins a frame

	reg v0, first0, last0;
	reg [5:0] base0;
	reg [QUADS*32-1:0] quads0;
	reg [QUADS-1:0] whole0;
	reg [USER_W-1:0] user0;

	function automatic [7:0] byte_of(input [DATA_W-1:0] word, input int i);
		byte_of = word[i*8 +: 8];
	endfunction

	always_ff @(posedge clk) begin
		v0 <= beat;
		if (beat) begin
			carried <= {byte_of(data, DATA_W/8 - 2), byte_of(data, DATA_W/8 - 1)};
			base <= last ? '0 : base >= FAR ? FAR : base + 6'(QUADS);
			begins <= last;
		end
		first0 <= begins;
		last0 <= last;
		base0 <= base;
		user0 <= user;
		for (int i = 0; i < QUADS; i++) begin
			quads0[i*32 +: 16] <= {byte_of(data, 4*i), byte_of(data, 4*i + 1)};
			quads0[i*32 + 16 +: 16] <= i == 0 ? carried : {byte_of(data, (4*i + DATA_W/8 - 2) % (DATA_W/8)),
			                                               byte_of(data, (4*i + DATA_W/8 - 1) % (DATA_W/8))};
			whole0[i] <= keep[4*i + 1];
		end
		if (rst) begin
			v0 <= 1'b0;
			base <= '0;
			begins <= 1'b1;
		end
	end

	// Whether the transfer at `first` has quad n, and the quad.
	function automatic has(input valid, input [5:0] first, input [QUADS-1:0] whole, input [5:0] n);
		has = valid && n[5:QL] == first[5:QL] && whole[n[QL-1:0]];
	endfunction
	function automatic [31:0] quad(input [QUADS*32-1:0] quads, input [5:0] n);
		quad = quads[n[QL-1:0]*32 +: 32];
	endfunction

	// ------------------------------------------------------------------ 1: EtherType
	localparam [1:0] OTHER = 0, IP4 = 1, IP6 = 2, TAG = 3;

	function automatic [1:0] kind_of(input [15:0] ethertype);
		case (ethertype)
		16'h0800: kind_of = IP4;
		16'h86dd: kind_of = IP6;
		16'h8100, 16'h88a8: kind_of = TAG;
		default: kind_of = OTHER;
		endcase
	endfunction

	// The transfer's EtherTypes, at quads 3, 4 and 5.
	reg vt, firstt, lastt;
	reg [5:0] baset;
	reg [QUADS*32-1:0] quadst;
	reg [QUADS-1:0] wholet;
	reg [USER_W-1:0] usert;
	reg [2:0] typed_here;
	reg [5:0] types_here;

	always_ff @(posedge clk) begin
		vt <= v0;
		firstt <= first0;
		lastt <= last0;
		baset <= base0;
		quadst <= quads0;
		wholet <= whole0;
		usert <= user0;
		for (int t = 0; t < 3; t++) begin
			typed_here[t] <= has(v0, base0, whole0, 6'(t + 3));
			types_here[2*t +: 2] <= kind_of(quads0[((t + 3) % QUADS)*32 +: 16]);
		end
		if (rst)
			vt <= 1'b0;
	end

	reg v1, first1, last1, known1;
	reg [5:0] base1;
	reg [QUADS*32-1:0] quads1;
	reg [QUADS-1:0] whole1;
	reg [USER_W-1:0] user1;
	reg [1:0] kind1;
	reg [2:0] l3_1;
	reg [3:0] l3b_1, l3c_1, end_1; // l3 + 1, l3 + 2, the last quad without options
	reg [2:0] typed;           // EtherTypes 0, 1, 2 were seen
	reg [5:0] types;

	logic [2:0] typed_now;
	logic [5:0] types_now;
	logic known_now;
	logic [1:0] kind_now, tags;
	always_comb begin
		for (int t = 0; t < 3; t++) begin
			typed_now[t] = typed_here[t] || (typed[t] && !firstt);
			types_now[2*t +: 2] = typed_here[t] ? types_here[2*t +: 2] : types[2*t +: 2];
		end
		if (types_now[1:0] != TAG) begin
			known_now = typed_now[0];
			kind_now = types_now[1:0];
			tags = 2'd0;
		end else if (types_now[3:2] != TAG) begin
			known_now = typed_now[0] && typed_now[1];
			kind_now = types_now[3:2];
			tags = 2'd1;
		end else begin
			known_now = typed_now == 3'b111;
			kind_now = types_now[5:4] == TAG ? OTHER : types_now[5:4];
			tags = 2'd2;
		end
	end

	always_ff @(posedge clk) begin
		v1 <= vt;
		first1 <= firstt;
		last1 <= lastt;
		base1 <= baset;
		quads1 <= quadst;
		whole1 <= wholet;
		user1 <= usert;
		if (vt) begin
			typed <= typed_now;
			types <= types_now;
			known1 <= known_now;
			kind1 <= kind_now;
			case (tags)
			2'd0: {l3_1, l3b_1, l3c_1, end_1} <= {3'd4, 4'd5, 4'd6, kind_now == IP4 ? 4'd8 : 4'd13};
			2'd1: {l3_1, l3b_1, l3c_1, end_1} <= {3'd5, 4'd6, 4'd7, kind_now == IP4 ? 4'd9 : 4'd14};
			default: {l3_1, l3b_1, l3c_1, end_1} <= {3'd6, 4'd7, 4'd8, kind_now == IP4 ? 4'd10 : 4'd15};
			endcase
		end
		if (rst)
			v1 <= 1'b0;
	end

	// ------------------------------------------------------------------ 2: IP header
	reg v2, first2, last2, known2;
	reg [5:0] base2;
	reg [QUADS*32-1:0] quads2;
	reg [QUADS-1:0] whole2;
	reg [USER_W-1:0] user2;
	reg [1:0] kind2;
	reg [2:0] l3_2;
	reg [3:0] l3d_2, l3e_2; // l3 + 3, l3 + 4
	reg [31:0] ip0, ip1, ip2;
	reg [2:0] have;
	reg ended; // the header without options is whole

	wire [5:0] quad_a = {3'b0, l3_1}, quad_b = {2'b0, l3b_1}, quad_c = {2'b0, l3c_1}, quad_end = {2'b0, end_1};
	wire ip_beat = v1 && known1 && kind1 != OTHER;

	always_ff @(posedge clk) begin
		v2 <= v1;
		first2 <= first1;
		last2 <= last1;
		base2 <= base1;
		quads2 <= quads1;
		whole2 <= whole1;
		user2 <= user1;
		known2 <= known1;
		kind2 <= kind1;
		l3_2 <= l3_1;
		l3d_2 <= {1'b0, l3_1} + 4'd3;
		l3e_2 <= {1'b0, l3_1} + 4'd4;
		if (v1 && first1) begin
			have <= '0;
			ended <= 1'b0;
		end
		if (has(ip_beat, base1, whole1, quad_a)) begin
			ip0 <= quad(quads1, quad_a);
			have[0] <= 1'b1;
		end
		if (has(ip_beat, base1, whole1, quad_b)) begin
			ip1 <= quad(quads1, quad_b);
			have[1] <= 1'b1;
		end
		if (has(ip_beat, base1, whole1, quad_c)) begin
			ip2 <= quad(quads1, quad_c);
			have[2] <= 1'b1;
		end
		if (has(ip_beat, base1, whole1, quad_end))
			ended <= 1'b1;
		if (rst)
			v2 <= 1'b0;
	end

	// ------------------------------------------------------------------ 3: is it TCP, and where
	reg v3, first3, last3, known3, ended3, candidate3, bad3;
	reg [5:0] base3;
	reg [QUADS*32-1:0] quads3;
	reg [QUADS-1:0] whole3;
	reg [USER_W-1:0] user3;
	reg [1:0] kind3;
	reg [2:0] l3_3;
	reg [4:0] l4_3, flags_3, check_3; // quads l4, l4 + 3, l4 + 4
	reg [16:0] length3;               // of TCP; negative if the total is below the IP header
	reg [15:0] ip_word3, ip_check3;

	wire [3:0] ihl = ip0[27:24];
	wire is4 = kind2 == IP4;
	wire [4:0] quads_2 = is4 ? {1'b0, ihl} : 5'd10;

	always_ff @(posedge clk) begin
		v3 <= v2;
		first3 <= first2;
		last3 <= last2;
		base3 <= base2;
		quads3 <= quads2;
		whole3 <= whole2;
		user3 <= user2;
		known3 <= known2;
		kind3 <= kind2;
		l3_3 <= l3_2;
		ended3 <= ended;
		bad3 <= have[0] && (is4 ? ip0[31:28] != 4 || ihl < 5 : ip0[31:28] != 6);
		// Its fields are known, and it may be TCP.
		candidate3 <= ended && (is4 ? ip2[23:16] == 8'd6 && ip1[13:0] == 0 : ip1[15:8] == 8'd6);
		l4_3 <= {2'b0, l3_2} + quads_2;
		flags_3 <= {1'b0, l3d_2} + quads_2;
		check_3 <= {1'b0, l3e_2} + quads_2;
		length3 <= is4 ? {1'b0, ip0[15:0]} - {11'b0, ihl, 2'b0} : {1'b0, ip1[31:16]};
		ip_word3 <= ip0[31:16];
		ip_check3 <= ip2[15:0];
		if (rst)
			v3 <= 1'b0;
	end

	// ------------------------------------------------------------------ 4: TCP header
	reg v4, first4, last4, known4, ended4, candidate4, bad4;
	reg [USER_W-1:0] user4;
	reg [1:0] kind4;
	reg [2:0] l3_4;
	reg [4:0] l4_4;
	reg [16:0] length4;
	reg [15:0] ip_word4, ip_check4;
	reg [31:0] tcp3;
	reg [15:0] tcp4;
	reg [1:0] tcp_have;

	// A transfer with TCP's quads is behind the whole IP header, or has its end.
	wire tcp_beat = v3 && candidate3;

	always_ff @(posedge clk) begin
		v4 <= v3;
		first4 <= first3;
		last4 <= last3;
		user4 <= user3;
		known4 <= known3;
		kind4 <= kind3;
		l3_4 <= l3_3;
		l4_4 <= l4_3;
		ended4 <= ended3;
		bad4 <= bad3;
		candidate4 <= candidate3;
		length4 <= length3;
		ip_word4 <= ip_word3;
		ip_check4 <= ip_check3;
		if (v3 && first3)
			tcp_have <= '0;
		if (has(tcp_beat, base3, whole3, {1'b0, flags_3})) begin
			tcp3 <= quad(quads3, {1'b0, flags_3});
			tcp_have[0] <= 1'b1;
		end
		if (has(tcp_beat, base3, whole3, {1'b0, check_3})) begin
			tcp4 <= quads3[check_3[QL-1:0]*32 + 16 +: 16];
			tcp_have[1] <= 1'b1;
		end
		if (rst)
			v4 <= 1'b0;
	end

	// ------------------------------------------------------------------ 5: the result
	reg told; // found has come for this frame

	wire ip_whole = known4 && ended4 && !bad4;
	wire tcp_whole = candidate4 && !bad4 && tcp_have == 2'b11;
	wire [5:0] header = {tcp3[31:28], 2'b0};
	wire [16:0] rest = length4 - {11'b0, header};
	wire nothing_more = known4 && (kind4 == OTHER || bad4 || (ended4 && !candidate4) || tcp_whole);
	wire tells = v4 && (last4 || nothing_more) && (first4 || !told);

	always_ff @(posedge clk) begin
		if (v4)
			told <= tells || (told && !first4);
		found <= tells;
		found_user <= user4;
		ip4 <= ip_whole && kind4 == IP4;
		ip6 <= ip_whole && kind4 == IP6;
		tcp <= ip_whole && tcp_whole && !length4[16] && length4 >= 20 && header >= 20 && !rest[16];
		l3 <= l3_4;
		l4 <= l4_4;
		ip_word <= ip_word4;
		ip_check <= ip_check4;
		tcp_word <= tcp3[31:16];
		window <= tcp3[15:0];
		check <= tcp4;
		payload <= rest[15:0];
		if (rst)
			found <= 1'b0;
	end
endmodule
`default_nettype wire
