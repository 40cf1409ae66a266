// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A FIFO whose first entry is at its output, which is a register. The caller never pushes when it is full and never pops when
// it is empty.
`default_nettype none
module fairswitch_fifo #(
	parameter int WIDTH = 8,
	parameter int DEPTH = 32 // a power of 2, 2 or more
) (
	input  wire               clk,
	input  wire               rst,
	input  wire               push,
	input  wire [WIDTH-1:0]   in,
	input  wire               pop,
	output reg  [WIDTH-1:0]   out,
	output reg                valid,
	output wire               full
);
	localparam int ADDR = $clog2(DEPTH);

	if (DEPTH < 2 || 1 << ADDR != DEPTH) begin : gen_check
		$error("DEPTH is a power of 2, 2 or more");
	end

	reg [WIDTH-1:0] store [0:DEPTH-1];
	reg [ADDR-1:0] head, tail; // head: of the entry behind the output
	reg [ADDR:0] used;         // with the output
	reg more;                  // used > 1
	wire load = pop || !valid;

	assign full = used[ADDR];

	always_ff @(posedge clk) begin
		if (push)
			store[tail] <= in;
		tail <= tail + ADDR'(push);
		if (load) begin
			out <= more ? store[head] : in;
			valid <= more || push;
			head <= head + ADDR'(more || push);
		end
		if (push != pop) begin
			used <= push ? used + 1'b1 : used - 1'b1;
			more <= push ? valid : used > (ADDR+1)'(2);
		end
		if (rst) begin
			tail <= '0;
			head <= '0;
			used <= '0;
			valid <= 1'b0;
			more <= 1'b0;
		end
	end
`ifdef FORMAL
`include "fairswitch_fifo.svh"
`endif
endmodule
`default_nettype wire
