// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The law of all queues: counts, samples, and one divider that serves the queues in turn. A job begins with `job`: it takes
// the values of its queue at that edge. Changes that come while it works wait, and one more job serves them all.
`default_nettype none
module fairswitch_law #(
	parameter int QUEUES = 8,
	parameter int QW = 3
) (
	input  wire                  clk,
	input  wire                  rst,
	// parameters
	input  wire [15:0]           avg_queue_time,
	input  wire [5:0]            updates,
	input  wire [3:0]            threshold,
	input  wire [15:0]           floor_bytes,
	input  wire [29:0]           aggregate_max, // 0: none
	input  wire [13:0]           mss_max,
	input  wire [15:0]           idle_samples,
	// queues
	input  wire [QUEUES*18-1:0]  q_words,
	input  wire [QUEUES*18-1:0]  q_maxwords,
	// events of a segment; at most one of the three
	input  wire                  opens,
	input  wire                  closes,
	input  wire                  aborts,
	input  wire [15:0]           payload,       // 0: no data
	input  wire [QW-1:0]         queue_in,      // the egress queue of its ingress port
	input  wire [QW-1:0]         queue_out,
	// windows
	input  wire [QW-1:0]         lookup_q,
	output wire [29:0]           lookup_window, // 0: none
	// for reading
	input  wire [QW-1:0]         show_q,
	output wire [11:0]           show_flows,
	output wire [15:0]           show_syns,
	output wire [15:0]           show_fins,
	output wire [15:0]           show_rsts,
	output wire [13:0]           show_mss,
	output wire [29:0]           show_window,
	// the order of what happens, for tests
	output wire                  job,
	output reg  [QW-1:0]         job_q,
	output wire                  sampled,
	output wire [QW-1:0]         sample_q,
	output wire [17:0]           sample,
	output wire                  busy
);
	// ------------------------------------------------------------------ counters
	wire [QUEUES*12-1:0] flows;
	wire [QUEUES*14-1:0] mss;
	wire [QUEUES*16-1:0] syns, fins, rsts;
	wire [QUEUES-1:0] changes, sampled_of, sampling;
	wire update;

	// An event reaches the registers of its queues a cycle later. Parameters that need a comparison are registers too.
	reg [1:0] opens_of [0:QUEUES-1], aborts_of [0:QUEUES-1];
	reg [QUEUES-1:0] closes_of, data_of;
	reg [13:0] mss_most, length;
	reg [15:0] floor1;
	reg [29:0] most;

	always_ff @(posedge clk) begin
		for (int q = 0; q < QUEUES; q++) begin
			opens_of[q] <= opens && !rst ? {1'b0, queue_in == QW'(q)} + {1'b0, queue_out == QW'(q)} : 2'd0;
			closes_of[q] <= closes && queue_out == QW'(q) && !rst;
			aborts_of[q] <= aborts && !rst ? {1'b0, queue_in == QW'(q)} + {1'b0, queue_out == QW'(q)} : 2'd0;
			data_of[q] <= payload != 0 && queue_out == QW'(q) && !rst;
		end
		mss_most <= mss_max == 0 ? 14'h3fff : mss_max;
		length <= {2'b0, mss_most} < payload ? mss_most : payload[13:0];
		floor1 <= floor_bytes == 0 ? 16'd1 : floor_bytes;
		most <= aggregate_max == 0 ? 30'h3fffffff : aggregate_max;
	end

	for (genvar q = 0; q < QUEUES; q++) begin : queue
		fairswitch_counter counter (
			.clk, .rst, .idle_samples,
			.sampling(sampling[q]),
			.opens(opens_of[q]),
			.closes(closes_of[q]),
			.aborts(aborts_of[q]),
			.data(data_of[q]),
			.length,
			.flows(flows[q*12 +: 12]), .mss(mss[q*14 +: 14]),
			.syns(syns[q*16 +: 16]), .fins(fins[q*16 +: 16]), .rsts(rsts[q*16 +: 16]),
			.changes(changes[q])
		);
	end

	assign show_flows = flows[show_q*12 +: 12];
	assign show_syns = syns[show_q*16 +: 16];
	assign show_fins = fins[show_q*16 +: 16];
	assign show_rsts = rsts[show_q*16 +: 16];
	assign show_mss = mss[show_q*14 +: 14];

	// ------------------------------------------------------------------ samples
	wire [22:0] sum;

	fairswitch_avg32 #(.QUEUES(QUEUES), .QW(QW)) avg32 (
		.clk, .rst, .period(avg_queue_time), .updates, .q_words,
		.read_q(job_q), .read_sum(sum), .sampled, .sampled_of, .sampling, .update, .sample_q, .sample
	);

	// ------------------------------------------------------------------ jobs
	localparam [3:0] SCAN = 0, TAKE = 1, DRIFT = 2, STEP = 3, RATIO = 4, MOVE = 5, CAP = 6, LEAST = 7, FLOOR = 8,
	                 SHARE = 9, WRITE = 10, SHIFT = 11, AIM = 12, LOOK = 13;

	reg [3:0] state;
	reg [QUEUES-1:0] stale, due, granted;
	reg [29:0] aggregates [0:QUEUES-1];
	reg [29:0] windows [0:QUEUES-1];

	reg [11:0] job_flows;
	reg [13:0] job_mss;
	reg [17:0] average, target, drift; // target: q_maxwords until SHIFT
	reg up, updating, no_flows, waits;
	reg [29:0] aggregate, least;
	reg [30:0] moved;
	reg begin_mul, begin_div;
	reg [31:0] dividend;
	reg [17:0] divisor;
	reg [15:0] mul_a;
	reg [17:0] mul_b;
	wire mul_done, div_done;
	wire [31:0] product, quotient;

	wire [17:0] target1 = target == 0 ? 18'd1 : target;
	wire [29:0] share = quotient < {16'b0, floor1} ? {14'b0, floor1} : quotient[29:0];

	wire [QW-1:0] next_q = job_q == QW'(QUEUES - 1) ? '0 : job_q + 1'b1;

	assign job = state == TAKE;
	assign busy = (state != SCAN && state != LOOK) || stale != 0 || due != 0;
	assign lookup_window = granted[lookup_q] ? windows[lookup_q] : '0;
	assign show_window = granted[show_q] ? windows[show_q] : '0;

	fairswitch_mul16 mul16 (.clk, .rst, .start(begin_mul), .a(mul_a), .b(mul_b), .product, .done(mul_done));
	fairswitch_div32 div32 (.clk, .rst, .start(begin_div), .dividend, .divisor, .quotient, .done(div_done));

	always_ff @(posedge clk) begin
		begin_mul <= 1'b0;
		begin_div <= 1'b0;
		for (int q = 0; q < QUEUES; q++) begin
			if (job && job_q == QW'(q)) begin
				stale[q] <= 1'b0;
				if (!stale[q])
					due[q] <= 1'b0;
			end
			if (sampled_of[q] && update)
				due[q] <= 1'b1;
			if (changes[q]) begin
				stale[q] <= 1'b1;
				due[q] <= 1'b0;
			end
		end
		case (state)
		SCAN: begin
			waits <= stale[job_q] || due[job_q]; // only a job ends it
			state <= LOOK;
		end
		LOOK: begin
			state <= waits ? TAKE : SCAN;
			if (!waits)
				job_q <= next_q;
		end
		TAKE: begin
			job_flows <= flows[job_q*12 +: 12];
			job_mss <= mss[job_q*14 +: 14];
			average <= sum[22:5];
			aggregate <= aggregates[job_q];
			target <= q_maxwords[job_q*18 +: 18];
			updating <= !stale[job_q];
			state <= SHIFT;
		end
		SHIFT: begin
			if (job_mss == 0)
				job_mss <= 14'd1460;
			target <= target >> threshold;
			no_flows <= job_flows == 0;
			state <= AIM;
		end
		AIM: begin
			target <= target1;
			if (!updating)
				aggregate <= {9'b0, target1, 3'b0};
			state <= updating ? DRIFT : FLOOR;
		end
		DRIFT: begin
			up <= average < target;
			drift <= average < target ? target - average : average - target;
			state <= no_flows ? SCAN : STEP;
			if (no_flows)
				job_q <= next_q;
		end
		STEP: begin
			mul_a <= {2'b0, job_mss};
			mul_b <= drift;
			begin_mul <= 1'b1;
			state <= RATIO;
		end
		RATIO:
			if (mul_done) begin
				dividend <= product;
				divisor <= target;
				begin_div <= 1'b1;
				state <= MOVE;
			end
		MOVE: begin
			if (up)
				moved <= {1'b0, aggregate} + {17'b0, quotient[13:0]}; // at most one MSS: the drift is at most target
			else
				moved <= quotient >= {2'b0, aggregate} ? '0 : {1'b0, aggregate} - {1'b0, quotient[29:0]};
			if (div_done)
				state <= CAP;
		end
		CAP: begin
			aggregate <= {1'b0, most} < moved ? most : moved[29:0];
			mul_a <= floor1;
			mul_b <= {6'b0, job_flows};
			begin_mul <= 1'b1;
			state <= LEAST;
		end
		LEAST:
			if (mul_done) begin
				least <= product[29:0];
				state <= FLOOR;
			end
		FLOOR: begin
			// A change of the count begins here: its aggregate stays below the floors until the next update.
			if (updating ? aggregate < least : most < aggregate)
				aggregate <= updating ? least : most;
			state <= no_flows ? WRITE : SHARE;
		end
		SHARE: begin
			dividend <= {2'b0, aggregate};
			divisor <= {6'b0, job_flows};
			begin_div <= 1'b1;
			state <= WRITE;
		end
		WRITE:
			if (no_flows || div_done) begin
				aggregates[job_q] <= aggregate;
				windows[job_q] <= share;
				granted[job_q] <= !no_flows;
				job_q <= next_q; // no queue waits for more than one job of each other queue
				state <= SCAN;
			end
		default:
			state <= SCAN;
		endcase
		if (rst) begin
			state <= SCAN;
			begin_mul <= 1'b0;
			begin_div <= 1'b0;
			job_q <= '0;
			stale <= '0;
			due <= '0;
			granted <= '0;
		end
	end
endmodule
`default_nettype wire
