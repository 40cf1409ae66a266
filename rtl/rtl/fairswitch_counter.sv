// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The registers of one queue: cur_flows, and its SYN-ACKs, FINs and RSTs. They stop at both ends: none wraps. In one cycle
// a sample comes before data, and data before a change of the count. A sample is at least 3 cycles
// behind the one before, and behind a reset.
`default_nettype none
module fairswitch_counter (
	input  wire        clk,
	input  wire        rst,
	input  wire [15:0] idle_samples,
	input  wire        sampling, // a sample comes in the next cycle
	input  wire [1:0]  opens,    // 0 .. 2 flows begin
	input  wire        closes,   // a flow ends by FIN
	input  wire [1:0]  aborts,   // 0 .. 2 flows end by RST; only one of the three is not 0
	input  wire        data,
	input  wire [13:0] length,   // of the data, at most the largest MSS
	output reg  [11:0] flows,
	output reg  [15:0] syns,
	output reg  [15:0] fins,
	output reg  [15:0] rsts,
	output reg  [13:0] mss,      // 0: none yet
	output wire        changes   // flows changes at the next edge
);
	reg [15:0] idle; // samples without data, with the next one
	reg active;      // data since the last sample
	reg never, late; // compared before the sample: no idle time is set, or the next sample reaches it
	reg sampled, expires;

	wire [11:0] base_flows = expires ? '0 : flows;
	wire down = closes || aborts != 0;
	wire [12:0] change = {{11{down}}, down || opens[1], closes || opens[0] || aborts[0]};
	wire [12:0] moved = {1'b0, base_flows} + change;

	assign changes = (expires && flows != 0) || (opens != 0 && base_flows != 12'hfff) ||
	                 ((closes || aborts != 0) && base_flows != 0);

	// Adds 0 .. 2 and stops at 65535.
	function automatic [15:0] added(input [15:0] value, input [1:0] by);
		reg [16:0] sum;
		sum = {1'b0, value} + {15'b0, by};
		added = sum[16] ? 16'hffff : sum[15:0];
	endfunction

	always_ff @(posedge clk) begin
		never <= idle_samples == 0;
		late <= idle_samples != 0 && idle >= idle_samples;
		sampled <= sampling;
		expires <= sampling && !active && !data && late;
		if (sampled) begin
			active <= 1'b0;
			idle <= active || never || late ? 16'd1 : idle + 16'd1;
		end
		if (data) begin
			active <= 1'b1;
			if (mss < length) // not ">": yosys builds that with one more comparison
				mss <= length;
		end
		flows <= moved[12] ? {12{opens != 0}} : moved[11:0];
		syns <= added(expires ? '0 : syns, opens);
		fins <= added(expires ? '0 : fins, {1'b0, closes});
		rsts <= added(expires ? '0 : rsts, aborts);
		if (rst) begin
			flows <= '0;
			syns <= '0;
			fins <= '0;
			rsts <= '0;
			mss <= '0;
			idle <= 16'd1;
			active <= 1'b0;
			sampled <= 1'b0;
			expires <= 1'b0;
		end
	end
`ifdef FORMAL
`include "fairswitch_counter.svh"
`endif
endmodule
`default_nettype wire
