// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// RFC 1624, equation 3: HC' = ~(~HC + ~m + m'), for up to two words that change. A word that does not change adds nothing:
// ~m + m is not the 0 of one's complement that leaves a checksum of ffff as it is. The result comes 4 cycles later.
`default_nettype none
module fairswitch_checksum (
	input  wire        clk,
	input  wire [15:0] check,
	input  wire        cleared,  // the reserved bits of the first word become 0
	input  wire [3:0]  reserved, // they were this
	input  wire        changed,  // one cycle later: the second word changes
	input  wire [15:0] old_word,
	input  wire [15:0] new_word,
	output reg  [15:0] sum
);
	reg [16:0] first, second;
	reg [17:0] total;

	// The sum with its carries added again: at most 4 * ffff, so twice is enough.
	reg [16:0] once;
	wire [15:0] twice = once[15:0] + {15'b0, once[16]};

	always_ff @(posedge clk) begin
		// ~m + m' of the first word is ffff minus the bits that go.
		first <= {1'b0, ~check} + (cleared ? {1'b0, ~{4'b0, reserved, 8'b0}} : 17'd0);
		second <= {1'b0, ~old_word} + {1'b0, new_word};

		total <= {1'b0, first} + (changed ? {1'b0, second} : 18'd0);

		once <= {1'b0, total[15:0]} + {15'b0, total[17:16]};

		sum <= ~twice;
	end
`ifdef FORMAL
`include "fairswitch_checksum.svh"
`endif
endmodule
`default_nettype wire
