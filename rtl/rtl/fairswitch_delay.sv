// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The same value some cycles later.
`default_nettype none
module fairswitch_delay #(
	parameter int WIDTH = 1,
	parameter int CYCLES = 1 // at least 1
) (
	input  wire             clk,
	input  wire [WIDTH-1:0] in,
	output wire [WIDTH-1:0] out
);
	reg [WIDTH*CYCLES-1:0] line;

	assign out = line[WIDTH*CYCLES-1 -: WIDTH];

	always_ff @(posedge clk)
		line <= (WIDTH*CYCLES)'({line, in});
endmodule
`default_nettype wire
