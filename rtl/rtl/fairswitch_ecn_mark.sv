// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// ECN_mark: ECT becomes CE in a packet that finds a queue over its threshold, and the IPv4 checksum follows. Two cycles.
`default_nettype none
module fairswitch_ecn_mark (
	input  wire        clk,
	input  wire        over,
	input  wire        ip4,
	input  wire        ip6,
	input  wire [15:0] word,  // version, TOS; or version, traffic class
	input  wire [15:0] check, // of the IPv4 header
	output reg         mark,
	output reg         mark4, // with mark: write the checksum too
	output reg  [15:0] new_word,
	output reg  [15:0] new_check
);
	wire [1:0] ecn = ip6 ? word[5:4] : word[1:0];
	wire ect = ecn == 2'b01 || ecn == 2'b10;
	reg mark1, mark4_1;
	reg [15:0] word1;
	reg [16:0] sum;
	wire [15:0] folded = sum[15:0] + {15'b0, sum[16]};

	always_ff @(posedge clk) begin
		mark1 <= over && ect && (ip4 || ip6);
		mark4_1 <= over && ect && ip4;
		word1 <= ip6 ? word | 16'h0030 : word | 16'h0003;
		sum <= {1'b0, ~check} + (ecn == 2'b01 ? 17'd2 : 17'd1); // ~m + m' is ffff + CE - ECT: CE - ECT with its carry

		mark <= mark1;
		mark4 <= mark4_1;
		new_word <= word1;
		new_check <= ~folded;
	end
`ifdef FORMAL
`include "fairswitch_ecn_mark.svh"
`endif
endmodule
`default_nettype wire
