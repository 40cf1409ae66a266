// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A FIFO whose first entry is at its output. The caller never pushes when it is full and never pops when it is empty.
`default_nettype none
module fairswitch_fifo #(
	parameter int WIDTH = 8,
	parameter int DEPTH = 32 // a power of 2
) (
	input  wire               clk,
	input  wire               rst,
	input  wire               push,
	input  wire [WIDTH-1:0]   in,
	input  wire               pop,
	output wire [WIDTH-1:0]   out,
	output wire               valid,
	output wire               full
);
	localparam int ADDR = $clog2(DEPTH);

	reg [WIDTH-1:0] store [0:DEPTH-1];
	reg [ADDR-1:0] head, tail;
	reg [ADDR:0] used;

	assign out = store[head];
	assign valid = used != 0;
	assign full = used[ADDR];

	always_ff @(posedge clk) begin
		if (push)
			store[tail] <= in;
		tail <= tail + ADDR'(push);
		head <= head + ADDR'(pop);
		used <= used + (ADDR+1)'(push) - (ADDR+1)'(pop);
		if (rst) begin
			tail <= '0;
			head <= '0;
			used <= '0;
		end
	end
`ifdef FORMAL
`include "fairswitch_fifo.svh"
`endif
endmodule
`default_nettype wire
