// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Writes up to five words of 16 bits into the frames of a stream. A frame waits until its edits are known. All words begin
// at even bytes: word k is bytes 2k and 2k + 1 of the frame.
`default_nettype none
module fairswitch_rewrite #(
	parameter int DATA_W = 64,
	parameter int USER_W = 6
) (
	input  wire                clk,
	input  wire                rst,
	// transfers
	input  wire                beat_valid,
	output wire                beat_pop,
	input  wire [DATA_W-1:0]   beat_data,
	input  wire [DATA_W/8-1:0] beat_keep,
	input  wire                beat_last,
	input  wire [USER_W-1:0]   beat_user,
	// edits of the frame at the front
	input  wire                edit_valid,
	output wire                edit_pop,
	input  wire [4:0]          edit_enable, // TOS, IP checksum, flags, window, TCP checksum
	input  wire [29:0]         edit_at,     // 6 bits each: k
	input  wire [79:0]         edit_word,
	// out
	output wire [DATA_W-1:0]   m_data,
	output wire [DATA_W/8-1:0] m_keep,
	output wire                m_last,
	output wire [USER_W-1:0]   m_user,
	output wire                m_valid,
	input  wire                m_ready
);
	localparam int WORDS = DATA_W / 16, WL = $clog2(WORDS);
	localparam int SIDE_W = DATA_W/8 + 1 + USER_W;
	localparam [6:0] FAR = 7'd64;

	reg [6:0] base; // k of the first word of the transfer at the front
	wire go, ready;

	assign beat_pop = go && beat_valid && edit_valid;
	assign edit_pop = beat_pop && beat_last;

	reg v0, v1;
	reg [DATA_W-1:0] data0, data1;
	reg [SIDE_W-1:0] side0, side1;
	reg [4:0] hit0;
	reg [5*WL-1:0] lane0;
	reg [79:0] word0;

	assign go = ready;

	always_ff @(posedge clk) begin
		if (go) begin
			v0 <= beat_pop;
			data0 <= beat_data;
			side0 <= {beat_keep, beat_last, beat_user};
			word0 <= edit_word;
			for (int e = 0; e < 5; e++) begin
				hit0[e] <= edit_enable[e] && !base[6] && edit_at[e*6 + WL +: 6 - WL] == base[5:WL];
				lane0[e*WL +: WL] <= edit_at[e*6 +: WL];
			end
			if (beat_pop)
				base <= beat_last ? '0 : base[6] ? FAR : base + 7'(WORDS);

			v1 <= v0;
			side1 <= side0;
			data1 <= data0;
			for (int w = 0; w < WORDS; w++)
				for (int e = 0; e < 5; e++)
					if (hit0[e] && lane0[e*WL +: WL] == WL'(w))
						data1[w*16 +: 16] <= {word0[e*16 +: 8], word0[e*16 + 8 +: 8]};
		end
		if (rst) begin
			v0 <= 1'b0;
			v1 <= 1'b0;
			base <= '0;
		end
	end

	fairswitch_skid #(.WIDTH(DATA_W + SIDE_W)) skid (
		.clk, .rst,
		.s_data({data1, side1}), .s_valid(v1), .s_ready(ready),
		.m_data({m_data, m_keep, m_last, m_user}), .m_valid, .m_ready
	);
`ifdef FORMAL
`include "fairswitch_rewrite.svh"
`endif
endmodule
`default_nettype wire
