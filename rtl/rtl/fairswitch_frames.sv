// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The path of a frame: its transfers wait in a FIFO until the parser and the decision are done, then they are rewritten. Nothing
// in the path depends on the law but the window and the threshold that it looks up.
`default_nettype none
module fairswitch_frames #(
	parameter int DATA_W = 64,
	parameter int QW = 3,
	parameter int BEATS = 32,  // that wait; a header and the latency of the decision must fit
	parameter int FRAMES = 32  // that wait, in whole or in part
) (
	input  wire                clk,
	input  wire                rst,
	input  wire [DATA_W-1:0]   s_axis_tdata,
	input  wire [DATA_W/8-1:0] s_axis_tkeep,
	input  wire                s_axis_tvalid,
	output wire                s_axis_tready,
	input  wire                s_axis_tlast,
	input  wire [2*QW-1:0]     s_axis_tuser, // {the queue that it leaves by, the queue of its ingress port}
	output wire [DATA_W-1:0]   m_axis_tdata,
	output wire [DATA_W/8-1:0] m_axis_tkeep,
	output wire                m_axis_tvalid,
	input  wire                m_axis_tready,
	output wire                m_axis_tlast,
	output wire [2*QW-1:0]     m_axis_tuser,
	// what the decision looks up, in the same cycle
	output wire [QW-1:0]       lookup_in,
	output wire [QW-1:0]       lookup_out,
	input  wire [29:0]         window,
	input  wire                over,
	input  wire [1:0]          clear,        // 0: reserved bits stay, 1: cleared, 2: cleared without the checksum
	// events for the law
	output reg                 opens,
	output reg                 closes,
	output reg                 aborts,
	output reg  [15:0]         payload,
	output reg  [QW-1:0]       event_in,
	output reg  [QW-1:0]       event_out,
	// for counting
	output wire                decided,      // a frame was looked up
	output wire                is_tcp,       // with decided
	output reg                 marked,
	output reg                 rewritten
);
	// A frame waits until its TCP header has ended: at byte 102 behind two tags and all options of IPv4.
	if (BEATS * DATA_W < 102 * 8) begin : gen_check
		$error("BEATS has no room for a header");
	end

	localparam int USER_W = 2*QW, BEAT_W = DATA_W + DATA_W/8 + 1 + USER_W, FL = $clog2(FRAMES);

	// ------------------------------------------------------------------ transfers in
	reg first;               // the next transfer begins a frame
	reg [FL:0] frames;       // that began and have not left
	wire beats_full, beat_valid, beat_pop, edit_valid, edit_pop;
	wire [BEAT_W-1:0] beat;
	wire take = s_axis_tvalid && s_axis_tready;

	assign s_axis_tready = !beats_full && !frames[FL];

	always_ff @(posedge clk) begin
		if (take)
			first <= s_axis_tlast;
		frames <= frames + (FL+1)'(take && first) - (FL+1)'(edit_pop);
		if (rst) begin
			first <= 1'b1;
			frames <= '0;
		end
	end

	fairswitch_fifo #(.WIDTH(BEAT_W), .DEPTH(BEATS)) transfers (
		.clk, .rst, .push(take), .in({s_axis_tdata, s_axis_tkeep, s_axis_tlast, s_axis_tuser}),
		.pop(beat_pop), .out(beat), .valid(beat_valid), .full(beats_full)
	);

	// ------------------------------------------------------------------ what the frame is
	wire found, ip4, ip6, tcp;
	wire [USER_W-1:0] user;
	wire [2:0] l3;
	wire [4:0] l4;
	wire [15:0] ip_word, ip_check, tcp_word, field, check, length;

	fairswitch_parser #(.DATA_W(DATA_W), .USER_W(USER_W)) parser (
		.clk, .rst, .beat(take), .data(s_axis_tdata), .keep(s_axis_tkeep), .last(s_axis_tlast), .user(s_axis_tuser),
		.found, .found_user(user), .ip4, .ip6, .tcp, .l3, .l4, .ip_word, .ip_check, .tcp_word, .window(field), .check,
		.payload(length)
	);

	wire fin = tcp_word[0], syn = tcp_word[1], rstf = tcp_word[2], ack = tcp_word[4];

	assign {lookup_out, lookup_in} = user;
	assign decided = found;
	assign is_tcp = tcp;

	always_ff @(posedge clk) begin
		opens <= found && tcp && syn && ack && !fin && !rstf && !rst;
		closes <= found && tcp && fin && !syn && !rstf && !rst;
		aborts <= found && tcp && rstf && !syn && !rst;
		payload <= found && tcp && !rst ? length : '0;
		{event_out, event_in} <= user;
	end

	// ------------------------------------------------------------------ the decision, in cycles after `found`
	// 1: what was looked up. 3: ECN_mark. 4, 5: the window's field, and that it is smaller. 8: the checksum.
	reg [29:0] window1;
	reg over1, ip4_1, ip6_1, clears1;
	reg [15:0] ip_word1, ip_check1, word1, field1, check1;

	wire clears = tcp && clear != 0 && tcp_word[11:8] != 0;

	always_ff @(posedge clk) begin
		window1 <= window;
		over1 <= over;
		ip4_1 <= ip4;
		ip6_1 <= ip6;
		ip_word1 <= ip_word;
		ip_check1 <= ip_check;
		word1 <= tcp_word;
		field1 <= field;
		check1 <= check;
		clears1 <= clears && clear != 2;
	end

	reg [7:0] known; // `found`, in the last 8 cycles; a reset empties it
	wire known8 = known[7];
	wire tcp8, clears8, sums8, smaller5, smaller8, mark3, mark4_3, mark8, mark4_8, sums4;
	wire [15:0] word8, granted4, granted8, ip_word3, ip_word8, ip_check3, ip_check8, field4, check4, sum8;
	wire [2:0] l3_8;
	wire [4:0] l4_8;
	wire [3:0] reserved4;

	always_ff @(posedge clk)
		known <= rst ? '0 : {known[6:0], found};
	fairswitch_delay #(.WIDTH(27), .CYCLES(8)) to8 (
		.clk, .in({tcp, clears, clears && clear != 2, tcp_word, l3, l4}),
		.out({tcp8, clears8, sums8, word8, l3_8, l4_8})
	);

	fairswitch_ecn_mark ecn_mark (
		.clk, .over(over1), .ip4(ip4_1), .ip6(ip6_1), .word(ip_word1), .check(ip_check1),
		.mark(mark3), .mark4(mark4_3), .new_word(ip_word3), .new_check(ip_check3)
	);
	fairswitch_delay #(.WIDTH(34), .CYCLES(5)) marks (
		.clk, .in({mark3, mark4_3, ip_word3, ip_check3}), .out({mark8, mark4_8, ip_word8, ip_check8})
	);

	fairswitch_window field_of (
		.clk, .window(window1), .word(word1), .field(field1), .granted(granted4), .smaller(smaller5)
	);
	fairswitch_delay #(.WIDTH(16), .CYCLES(4)) grants (.clk, .in(granted4), .out(granted8));
	fairswitch_delay #(.WIDTH(1), .CYCLES(3)) smaller (.clk, .in(smaller5), .out(smaller8));

	fairswitch_delay #(.WIDTH(37), .CYCLES(3)) olds (
		.clk, .in({field1, check1, word1[11:8], clears1}), .out({field4, check4, reserved4, sums4})
	);
	fairswitch_checksum checksum (
		.clk, .check(check4), .cleared(sums4), .reserved(reserved4), .changed(smaller5), .old_word(field4),
		.new_word(granted4), .sum(sum8)
	);

	always_ff @(posedge clk) begin
		marked <= known8 && mark8 && !rst;
		rewritten <= known8 && tcp8 && smaller8 && !rst;
	end

	// ------------------------------------------------------------------ frames out
	localparam int EDIT_W = 5 + 30 + 80;
	wire [EDIT_W-1:0] edit;
	wire writes8 = tcp8 && smaller8;

	fairswitch_fifo #(.WIDTH(EDIT_W), .DEPTH(FRAMES)) edits (
		.clk, .rst, .push(known8),
		.in({{tcp8 && (smaller8 || sums8), writes8, clears8, mark4_8, mark8},
		     {{l4_8 + 5'd3, 1'b1}, {l4_8 + 5'd3, 1'b0}, {l4_8 + 5'd2, 1'b1}, {2'b0, l3_8, 1'b0} + 6'd4, {2'b0, l3_8, 1'b0} - 6'd1},
		     {sum8, granted8, {word8 & 16'hf0ff}, ip_check8, ip_word8}}),
		.pop(edit_pop), .out(edit), .valid(edit_valid), .full()
	);

	fairswitch_rewrite #(.DATA_W(DATA_W), .USER_W(USER_W)) rewrite (
		.clk, .rst, .beat_valid, .beat_pop,
		.beat_data(beat[BEAT_W-1 -: DATA_W]), .beat_keep(beat[USER_W+1 +: DATA_W/8]),
		.beat_last(beat[USER_W]), .beat_user(beat[USER_W-1:0]),
		.edit_valid, .edit_pop, .edit_enable(edit[EDIT_W-1 -: 5]), .edit_at(edit[109:80]), .edit_word(edit[79:0]),
		.m_data(m_axis_tdata), .m_keep(m_axis_tkeep), .m_last(m_axis_tlast), .m_user(m_axis_tuser),
		.m_valid(m_axis_tvalid), .m_ready(m_axis_tready)
	);
endmodule
`default_nettype wire
