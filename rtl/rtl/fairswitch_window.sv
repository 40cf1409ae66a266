// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The window field of a segment: min(field, ceil(window / 2^shift)). The shift is that of the reserved bits (15 acts as 14),
// 0 in a SYN. The result comes 4 cycles later, one each cycle.
`default_nettype none
module fairswitch_window (
	input  wire        clk,
	input  wire [29:0] window,  // 0: nothing is granted
	input  wire [15:0] word,    // data offset, reserved bits, flags
	input  wire [15:0] field,
	output reg  [15:0] granted, // 3 cycles later
	output reg         smaller  // 4 cycles later: write what granted was one cycle before
);
	wire [3:0] reserved = word[11:8];
	wire syn = word[1], ack = word[4];
	wire [3:0] shift = syn ? 4'd0 : reserved == 4'd15 ? 4'd14 : reserved;
	wire [13:0] below = ~(14'h3fff << shift); // 2^shift - 1

	reg [30:0] up, shifted;
	reg [3:0] shift1;
	reg [15:0] field1, field2, field3;
	reg may1, may2, may3;

	always_ff @(posedge clk) begin
		up <= {1'b0, window} + {17'b0, below};
		shift1 <= shift;
		field1 <= field;
		may1 <= ack && window != 0;

		shifted <= up >> shift1;
		field2 <= field1;
		may2 <= may1;

		granted <= |shifted[30:16] ? 16'hffff : shifted[15:0];
		field3 <= field2;
		may3 <= may2;

		smaller <= may3 && granted < field3;
	end
`ifdef FORMAL
`include "fairswitch_window.svh"
`endif
endmodule
`default_nettype wire
