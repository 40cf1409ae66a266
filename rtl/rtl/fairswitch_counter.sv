// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The registers of one queue: cur_flows, and its SYN-ACKs, FINs and RSTs. They stop at both ends: none wraps. In one cycle
// a sample comes before data, and data before a change of the count.
`default_nettype none
module fairswitch_counter (
	input  wire        clk,
	input  wire        rst,
	input  wire [15:0] idle_samples,
	input  wire [13:0] mss_max,  // 0: none
	input  wire        sampled,
	input  wire [1:0]  opens,    // 0 .. 2 flows begin
	input  wire        closes,   // a flow ends by FIN
	input  wire [1:0]  aborts,   // 0 .. 2 flows end by RST; only one of the three is not 0
	input  wire        data,
	input  wire [15:0] payload,
	output reg  [11:0] flows,
	output reg  [15:0] syns,
	output reg  [15:0] fins,
	output reg  [15:0] rsts,
	output reg  [13:0] mss,      // 0: none yet
	output wire        changes   // flows changes at the next edge
);
	reg [15:0] idle;
	reg active; // data since the last sample

	wire [13:0] most = mss_max == 0 ? 14'h3fff : mss_max;
	wire [13:0] length = payload > {2'b0, most} ? most : payload[13:0];
	wire [15:0] idle_next = idle + 16'd1;
	wire expires = sampled && !active && idle_samples != 0 && idle_next >= idle_samples;
	wire [11:0] base_flows = expires ? '0 : flows;
	wire [12:0] more = {1'b0, base_flows} + {11'b0, opens};
	wire [12:0] less = {1'b0, base_flows} - {11'b0, aborts | {1'b0, closes}};

	assign changes = (expires && flows != 0) || (opens != 0 && base_flows != 12'hfff) ||
	                 ((closes || aborts != 0) && base_flows != 0);

	// Adds 0 .. 2 and stops at 65535.
	function automatic [15:0] added(input [15:0] value, input [1:0] by);
		reg [16:0] sum;
		sum = {1'b0, value} + {15'b0, by};
		added = sum[16] ? 16'hffff : sum[15:0];
	endfunction

	always_ff @(posedge clk) begin
		if (sampled) begin
			active <= 1'b0;
			idle <= active || idle_samples == 0 || expires ? '0 : idle_next;
		end
		if (data) begin
			active <= 1'b1;
			if (length > mss)
				mss <= length;
		end
		if (opens != 0)
			flows <= more[12] ? 12'hfff : more[11:0];
		else
			flows <= less[12] ? '0 : less[11:0];
		syns <= added(expires ? '0 : syns, opens);
		fins <= added(expires ? '0 : fins, {1'b0, closes});
		rsts <= added(expires ? '0 : rsts, aborts);
		if (rst) begin
			flows <= '0;
			syns <= '0;
			fins <= '0;
			rsts <= '0;
			mss <= '0;
			idle <= '0;
			active <= 1'b0;
		end
	end
`ifdef FORMAL
`include "fairswitch_counter.svh"
`endif
endmodule
`default_nettype wire
