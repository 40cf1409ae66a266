// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairSwitch between parse_out_port and store_pkt of NetFPGA-1G's output_queues. Words of 64 bits have byte 0 in the high
// bits. A frame begins with module headers, whose ctrl is not 0. The input arbiter's has ctrl 0xff. Then come words with ctrl 0. The ctrl
// of the last word has the bit of its last byte: 0x80 for byte 0, 0x01 for byte 7.
//   ctrl 0xff: dst port, one bit each, in 63:48; word length 47:32; src port 31:16; byte length 15:0
// Module headers wait in a FIFO and leave before their frame. As in NetFPGA, a word
// may be written in the cycle after rdy falls.
`default_nettype none
module fairswitch_netfpga #(
	parameter int QUEUES = 8,
	parameter int HEADERS = 32, // words of module headers that wait
	localparam int QW = QUEUES > 1 ? $clog2(QUEUES) : 1
) (
	input  wire                 clk,
	input  wire                 reset,
	input  wire [63:0]          in_data,
	input  wire [7:0]           in_ctrl,
	input  wire                 in_wr,
	output wire                 in_rdy,
	output reg  [63:0]          out_data,
	output reg  [7:0]           out_ctrl,
	output reg                  out_wr,
	input  wire                 out_rdy,
	input  wire [QUEUES*18-1:0] q_words,
	input  wire [QUEUES*18-1:0] q_maxwords,
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
	localparam int INPUT = 4;

	// ------------------------------------------------------------------ words in
	// Four words wait before the block: the writer sees in_rdy a cycle later.
	wire word_valid, word_pop;
	wire [71:0] word;
	reg [2:0] waiting;

	fairswitch_fifo #(.WIDTH(72), .DEPTH(INPUT)) words (
		.clk, .rst(reset), .push(in_wr), .in({in_ctrl, in_data}), .pop(word_pop), .out(word), .valid(word_valid),
		.full()
	);

	always_ff @(posedge clk)
		waiting <= reset ? '0 : waiting + {2'b0, in_wr} - {2'b0, word_pop};
	assign in_rdy = waiting < 3'd2;

	wire [7:0] ctrl = word[71:64];
	wire [63:0] bytes = word[63:0];
	reg body;                // the word is of the frame, not of a module header
	reg [QW-1:0] q_in, q_out;

	// The lowest bit that is set.
	function automatic [QW-1:0] lowest(input [15:0] ports);
		lowest = '0;
		for (int i = QUEUES - 1; i >= 0; i--)
			if (ports[i])
				lowest = QW'(i);
	endfunction

	wire header = word_valid && !body && ctrl != 0;
	wire ends = body && ctrl != 0;
	wire headers_full, block_ready;
	wire take_header = header && !headers_full;
	wire offers = word_valid && !header && (body || !headers_full);
	wire take_beat = offers && block_ready;

	assign word_pop = take_header || take_beat;

	always_ff @(posedge clk) begin
		if (take_header && ctrl == 8'hff) begin
			q_out <= lowest(bytes[63:48]);
			q_in <= QW'(bytes[31:16]);
		end
		if (take_beat)
			body <= !ends;
		if (reset)
			body <= 1'b0;
	end

	wire [63:0] beat_in, beat_out;
	wire [7:0] keep_in, keep_out;
	wire [2*QW-1:0] user_out;
	wire out_valid, out_last, out_take;

	for (genvar i = 0; i < 8; i++) begin : bytes_of
		assign beat_in[8*i +: 8] = bytes[63 - 8*i -: 8];
		// Byte i is kept if the last byte is i or behind it: the bit of byte k is 7 - k.
		assign keep_in[i] = !ends || |(ctrl & (8'hff >> i));
	end

	fairswitch #(.DATA_W(64), .QUEUES(QUEUES)) block (
		.clk, .rst(reset),
		.s_axis_tdata(beat_in), .s_axis_tkeep(keep_in), .s_axis_tvalid(offers), .s_axis_tready(block_ready),
		.s_axis_tlast(ends), .s_axis_tuser({q_out, q_in}),
		.m_axis_tdata(beat_out), .m_axis_tkeep(keep_out), .m_axis_tvalid(out_valid), .m_axis_tready(out_take),
		.m_axis_tlast(out_last), .m_axis_tuser(user_out),
		.q_words, .q_maxwords,
		.s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wvalid, .s_axil_wready, .s_axil_bresp,
		.s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready, .s_axil_rdata, .s_axil_rresp,
		.s_axil_rvalid, .s_axil_rready
	);

	// ------------------------------------------------------------------ module headers
	// A mark behind the last header of a frame says that the frame follows. It leaves with the frame's first word.
	wire held_valid, mark;
	wire [7:0] held_ctrl;
	wire [63:0] held_data;
	reg sending; // a frame whose first word has left
	wire begins = take_beat && !body;
	wire send_header = out_rdy && !sending && held_valid && !mark;
	wire send_beat = out_rdy && out_valid && (sending || (held_valid && mark));

	assign out_take = out_rdy && (sending || (held_valid && mark));

	fairswitch_fifo #(.WIDTH(73), .DEPTH(HEADERS)) headers (
		.clk, .rst(reset), .push(take_header || begins), .in({begins, word}), .pop(send_header || (send_beat && !sending)),
		.out({mark, held_ctrl, held_data}), .valid(held_valid), .full(headers_full)
	);

	always_ff @(posedge clk) begin
		out_wr <= send_header || send_beat;
		out_ctrl <= held_ctrl;
		out_data <= held_data;
		if (send_beat) begin
			sending <= !out_last;
			for (int i = 0; i < 8; i++) begin
				out_data[63 - 8*i -: 8] <= beat_out[8*i +: 8];
				out_ctrl[7 - i] <= out_last && keep_out[i] && (i == 7 || !keep_out[(i + 1) % 8]);
			end
		end
		if (reset) begin
			out_wr <= 1'b0;
			sending <= 1'b0;
		end
	end
endmodule
`default_nettype wire
