// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// avg_32: samples all queues every `period` cycles, one after the other, and keeps the sum of the last 32 samples of each.
// A queue takes 4 cycles, so period must be over 4 * QUEUES.
`default_nettype none
module fairswitch_avg32 #(
	parameter int QUEUES = 8,
	parameter int QW = 3
) (
	input  wire                  clk,
	input  wire                  rst,
	input  wire [15:0]           period,   // avg_queue_time, in cycles
	input  wire [5:0]            updates,  // M
	input  wire [QUEUES*18-1:0]  q_words,
	input  wire [QW-1:0]         read_q,
	output wire [22:0]           read_sum, // of read_q
	output reg                   sampled,  // sample_q has a new sum at the next edge
	output reg  [QUEUES-1:0]     sampled_of, // the same, one bit for each queue
	output reg  [QUEUES-1:0]     sampling,   // the same, a cycle before
	output reg                   update,   // with sampled: M samples have passed
	output reg  [QW-1:0]         sample_q,
	output reg  [17:0]           sample
);
	reg [17:0] samples [0:QUEUES*32-1];
	reg [22:0] sums [0:QUEUES-1];
	reg [4:0] slot;
	reg [5:0] ticks;
	reg [15:0] time_left;
	reg [2:0] step; // 0: waits, 1: reads, 2: the RAM's output takes a cycle of its own, 3: subtracts, 4: adds
	reg [QW-1:0] q;
	reg full;       // 32 samples were taken: before, the oldest is 0
	reg [17:0] read, oldest, next;
	reg [18:0] grown;  // by how much the sum grows: signed
	reg [22:0] sum;    // before
	reg wraps;
	wire [5:0] most = updates == 0 ? 6'd1 : updates;
	wire last_q = q == QW'(QUEUES - 1);

	assign read_sum = sums[read_q];

	always_ff @(posedge clk) begin
		time_left <= time_left - 1'b1;
		if (time_left == 0)
			time_left <= period - 1'b1;
		sampled <= step == 3;
		for (int i = 0; i < QUEUES; i++)
			sampling[i] <= step == 2 && q == QW'(i);
		sampled_of <= sampling;
		oldest <= read;
		wraps <= ticks + 6'd1 >= most;
		update <= wraps;
		sample_q <= q;
		sample <= next;
		case (step)
		3'd0: begin
			q <= '0;
			if (time_left == 0)
				step <= 3'd1;
		end
		3'd1: begin
			read <= samples[{q, slot}];
			next <= q_words[q*18 +: 18];
			step <= 3'd2;
		end
		3'd2:
			step <= 3'd3;
		3'd3: begin
			samples[{q, slot}] <= next;
			grown <= {1'b0, next} - (full ? {1'b0, oldest} : 19'd0);
			sum <= full || slot != 0 ? sums[q] : '0; // the first sample of all clears
			step <= 3'd4;
		end
		default: begin
			q <= q + 1'b1;
			step <= 3'd1;
			if (last_q) begin
				step <= 3'd0;
				slot <= slot + 1'b1;
				full <= full || slot == 5'd31;
				ticks <= wraps ? '0 : ticks + 1'b1;
			end
		end
		endcase
		if (sampled)
			sums[sample_q] <= sum + {{4{grown[18]}}, grown};
		if (rst) begin
			time_left <= period - 1'b1;
			step <= '0;
			slot <= '0;
			ticks <= '0;
			full <= 1'b0;
			sampled <= 1'b0;
			sampled_of <= '0;
			sampling <= '0;
		end
	end
endmodule
`default_nettype wire
