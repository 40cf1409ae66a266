// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A register stage of a stream with two entries: ready is a register too, and no transfer waits longer than its successor.
`default_nettype none
module fairswitch_skid #(
	parameter int WIDTH = 8
) (
	input  wire             clk,
	input  wire             rst,
	input  wire [WIDTH-1:0] s_data,
	input  wire             s_valid,
	output wire             s_ready,
	output wire [WIDTH-1:0] m_data,
	output wire             m_valid,
	input  wire             m_ready
);
	reg [WIDTH-1:0] front, behind;
	reg front_valid, behind_valid;

	assign s_ready = !behind_valid;
	assign m_data = front;
	assign m_valid = front_valid;

	always_ff @(posedge clk) begin
		if (m_ready || !front_valid) begin
			front <= behind_valid ? behind : s_data;
			front_valid <= behind_valid || s_valid;
			behind_valid <= 1'b0;
		end else if (s_valid && s_ready) begin
			behind <= s_data;
			behind_valid <= 1'b1;
		end
		if (rst) begin
			front_valid <= 1'b0;
			behind_valid <= 1'b0;
		end
	end
`ifdef FORMAL
`include "fairswitch_skid.svh"
`endif
endmodule
`default_nettype wire
