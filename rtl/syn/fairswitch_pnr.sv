// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairSwitch with few pins, for placing and routing: inputs come from a shift register, outputs go into another. So every path of
// the block lies between registers, as inside a switch.
`default_nettype none
module fairswitch_pnr #(
	parameter int DATA_W = 64,
	parameter int QUEUES = 8,
	localparam int QW = QUEUES > 1 ? $clog2(QUEUES) : 1
) (
	input  wire clk,
	input  wire rst,
	input  wire in,
	input  wire load,
	output wire out
);
	localparam int INPUTS = DATA_W + DATA_W/8 + 3 + 2*QW + 2*QUEUES*18 + 12*2 + 32 + 5 - 1;
	localparam int OUTPUTS = DATA_W + DATA_W/8 + 3 + 2*QW + 2 + 2 + 2 + 32 + 2 + 1;
	reg [INPUTS-1:0] from;
	reg [OUTPUTS-1:0] to;
	wire [OUTPUTS-1:0] result;
	reg rst1, rst2;

	assign out = to[OUTPUTS-1];

	always_ff @(posedge clk) begin
		rst1 <= rst;
		rst2 <= rst1;
		from <= {from[INPUTS-2:0], in};
		to <= load ? result : {to[OUTPUTS-2:0], 1'b0};
	end

	wire [DATA_W-1:0] data;
	wire [DATA_W/8-1:0] keep;
	wire valid, last, ready;
	wire [2*QW-1:0] user;
	wire [QUEUES*18-1:0] words, most;
	wire [11:0] aw, ar;
	wire [31:0] wdata;
	wire awv, wv, br, arv, rr;
	assign {data, keep, valid, last, ready, user, words, most, aw, ar, wdata, awv, wv, br, arv, rr} = {from, 1'b1};

	wire [DATA_W-1:0] m_data;
	wire [DATA_W/8-1:0] m_keep;
	wire m_valid, m_last, s_ready;
	wire [2*QW-1:0] m_user;
	wire awr, wr, bv, arr, rv;
	wire [1:0] bresp, rresp;
	wire [31:0] rdata;
	assign result = {m_data, m_keep, m_valid, m_last, s_ready, m_user, awr, wr, bresp, bv, arr, rdata, rresp, rv};

	fairswitch #(.DATA_W(DATA_W), .QUEUES(QUEUES)) block (
		.clk, .rst(rst2),
		.s_axis_tdata(data), .s_axis_tkeep(keep), .s_axis_tvalid(valid), .s_axis_tready(s_ready), .s_axis_tlast(last),
		.s_axis_tuser(user), .m_axis_tdata(m_data), .m_axis_tkeep(m_keep), .m_axis_tvalid(m_valid), .m_axis_tready(ready),
		.m_axis_tlast(m_last), .m_axis_tuser(m_user), .q_words(words), .q_maxwords(most),
		.s_axil_awaddr(aw), .s_axil_awvalid(awv), .s_axil_awready(awr), .s_axil_wdata(wdata), .s_axil_wvalid(wv),
		.s_axil_wready(wr), .s_axil_bresp(bresp), .s_axil_bvalid(bv), .s_axil_bready(br), .s_axil_araddr(ar),
		.s_axil_arvalid(arv), .s_axil_arready(arr), .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rv),
		.s_axil_rready(rr)
	);
endmodule
`default_nettype wire
