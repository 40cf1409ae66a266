// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairSwitch: FairQ in a switch's output queues (Abdelmoniem and Bensaou, section IV.E). Frames pass on AXI4-Stream between
// the lookup of the output port and the queues. docs/fairswitch-rtl.md; the same in C: datapath/core/fairq/fairswitch.h and
// fairswitch_frame.h.
`default_nettype none
module fairswitch #(
	parameter int DATA_W = 64, // 64, 128, 256 or 512
	parameter int QUEUES = 8,
	parameter int BEATS = 32,
	parameter int FRAMES = 32,
	localparam int QW = QUEUES > 1 ? $clog2(QUEUES) : 1
) (
	input  wire                 clk,
	input  wire                 rst,
	input  wire [DATA_W-1:0]    s_axis_tdata,
	input  wire [DATA_W/8-1:0]  s_axis_tkeep,
	input  wire                 s_axis_tvalid,
	output wire                 s_axis_tready,
	input  wire                 s_axis_tlast,
	input  wire [2*QW-1:0]      s_axis_tuser, // {the queue that it leaves by, the queue of its ingress port}
	output wire [DATA_W-1:0]    m_axis_tdata,
	output wire [DATA_W/8-1:0]  m_axis_tkeep,
	output wire                 m_axis_tvalid,
	input  wire                 m_axis_tready,
	output wire                 m_axis_tlast,
	output wire [2*QW-1:0]      m_axis_tuser,
	// from the registers of the output queues
	input  wire [QUEUES*18-1:0] q_words,
	input  wire [QUEUES*18-1:0] q_maxwords,
	// AXI4-Lite
	input  wire [11:0]          s_axil_awaddr,
	input  wire                 s_axil_awvalid,
	output wire                 s_axil_awready,
	input  wire [31:0]          s_axil_wdata,
	input  wire                 s_axil_wvalid,
	output wire                 s_axil_wready,
	output wire [1:0]           s_axil_bresp,
	output wire                 s_axil_bvalid,
	input  wire                 s_axil_bready,
	input  wire [11:0]          s_axil_araddr,
	input  wire                 s_axil_arvalid,
	output wire                 s_axil_arready,
	output wire [31:0]          s_axil_rdata,
	output wire [1:0]           s_axil_rresp,
	output wire                 s_axil_rvalid,
	input  wire                 s_axil_rready
);
	wire [1:0] clear;
	wire enable, ecn;
	wire [15:0] avg_queue_time, floor_bytes, idle_samples;
	wire [5:0] updates;
	wire [3:0] threshold, ecn_threshold;
	wire [29:0] aggregate_max, show_window;
	wire [13:0] mss_max, show_mss;
	wire [QW-1:0] show_q;
	wire [11:0] show_flows;
	wire [15:0] show_syns, show_fins, show_rsts;

	wire opens /*verilator public_flat_rd*/, closes /*verilator public_flat_rd*/, aborts /*verilator public_flat_rd*/;
	wire decided /*verilator public_flat_rd*/, is_tcp, marked, rewritten;
	wire [15:0] payload /*verilator public_flat_rd*/;
	wire [QW-1:0] event_in /*verilator public_flat_rd*/, event_out /*verilator public_flat_rd*/;
	wire [QW-1:0] lookup_in /*verilator public_flat_rd*/, lookup_out /*verilator public_flat_rd*/;
	wire [29:0] window /*verilator public_flat_rd*/;

	reg [QUEUES-1:0] over /*verilator public_flat_rd*/;

	// The order of what happens, which the test bench reads.
	wire law_job /*verilator public_flat_rd*/, law_sampled /*verilator public_flat_rd*/, law_busy /*verilator public_flat_rd*/;
	wire [QW-1:0] law_job_q /*verilator public_flat_rd*/, law_sample_q /*verilator public_flat_rd*/;
	wire [17:0] law_sample /*verilator public_flat_rd*/;

	if (QUEUES > 32)
		$error("the registers have room for 32 queues");

	// A queue in each cycle: `over` is at most QUEUES + 2 cycles old.
	reg [QW-1:0] compared, shifted, looked;
	reg [17:0] look_words, compare_words, look_most, compare_most;

	always_ff @(posedge clk) begin
		looked <= looked == QW'(QUEUES - 1) ? '0 : looked + 1'b1;
		look_words <= q_words[looked*18 +: 18];
		look_most <= q_maxwords[looked*18 +: 18];
		shifted <= looked;
		compare_words <= look_words;
		compare_most <= look_most >> ecn_threshold;
		compared <= shifted;
		over[compared] <= ecn && compare_most < compare_words;
		if (rst)
			looked <= '0;
	end

	fairswitch_regs #(.QW(QW)) regs (
		.clk, .rst,
		.awaddr(s_axil_awaddr), .awvalid(s_axil_awvalid), .awready(s_axil_awready),
		.wdata(s_axil_wdata), .wvalid(s_axil_wvalid), .wready(s_axil_wready),
		.bresp(s_axil_bresp), .bvalid(s_axil_bvalid), .bready(s_axil_bready),
		.araddr(s_axil_araddr), .arvalid(s_axil_arvalid), .arready(s_axil_arready),
		.rdata(s_axil_rdata), .rresp(s_axil_rresp), .rvalid(s_axil_rvalid), .rready(s_axil_rready),
		.clear, .enable, .ecn, .avg_queue_time, .updates, .threshold, .ecn_threshold, .floor_bytes, .aggregate_max, .mss_max,
		.idle_samples, .decided, .tcp(is_tcp), .marked, .rewritten,
		.show_q, .show_flows, .show_syns, .show_fins, .show_rsts, .show_mss, .show_window
	);

	fairswitch_law #(.QUEUES(QUEUES), .QW(QW)) law (
		.clk, .rst, .avg_queue_time, .updates, .threshold, .floor_bytes, .aggregate_max, .mss_max, .idle_samples,
		.q_words, .q_maxwords,
		.opens, .closes, .aborts, .payload, .queue_in(event_in), .queue_out(event_out),
		.lookup_q(lookup_in), .lookup_window(window),
		.show_q, .show_flows, .show_syns, .show_fins, .show_rsts, .show_mss, .show_window,
		.job(law_job), .job_q(law_job_q), .sampled(law_sampled), .sample_q(law_sample_q), .sample(law_sample), .busy(law_busy)
	);

	fairswitch_frames #(.DATA_W(DATA_W), .QW(QW), .BEATS(BEATS), .FRAMES(FRAMES)) path (
		.clk, .rst,
		.s_axis_tdata, .s_axis_tkeep, .s_axis_tvalid, .s_axis_tready, .s_axis_tlast, .s_axis_tuser,
		.m_axis_tdata, .m_axis_tkeep, .m_axis_tvalid, .m_axis_tready, .m_axis_tlast, .m_axis_tuser,
		.lookup_in, .lookup_out, .window(enable ? window : '0), .over(over[lookup_out]), .clear,
		.opens, .closes, .aborts, .payload, .event_in, .event_out,
		.decided, .is_tcp, .marked, .rewritten
	);
endmodule
`default_nettype wire
