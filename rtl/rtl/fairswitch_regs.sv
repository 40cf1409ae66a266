// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairSwitch_regs: parameters and counts on AXI4-Lite, 32 bits. Addresses are in docs/fairswitch-rtl.md. A parameter acts
// from the next job or frame on.
`default_nettype none
module fairswitch_regs #(
	parameter int QW = 3
) (
	input  wire          clk,
	input  wire          rst,
	input  wire [11:0]   awaddr,
	input  wire          awvalid,
	output wire          awready,
	input  wire [31:0]   wdata,
	input  wire          wvalid,
	output wire          wready,
	output wire [1:0]    bresp,
	output reg           bvalid,
	input  wire          bready,
	input  wire [11:0]   araddr,
	input  wire          arvalid,
	output wire          arready,
	output reg  [31:0]   rdata,
	output wire [1:0]    rresp,
	output reg           rvalid,
	input  wire          rready,
	// parameters
	output reg  [1:0]    clear,
	output reg           enable,
	output reg           ecn,
	output reg  [15:0]   avg_queue_time,
	output reg  [5:0]    updates,
	output reg  [3:0]    threshold,
	output reg  [3:0]    ecn_threshold,
	output reg  [15:0]   floor_bytes,
	output reg  [29:0]   aggregate_max,
	output reg  [13:0]   mss_max,
	output reg  [15:0]   idle_samples,
	// counts
	input  wire          decided,
	input  wire          tcp,
	input  wire          marked,
	input  wire          rewritten,
	// the queue that is read
	output reg  [QW-1:0] show_q,
	input  wire [11:0]   show_flows,
	input  wire [15:0]   show_syns,
	input  wire [15:0]   show_fins,
	input  wire [15:0]   show_rsts,
	input  wire [13:0]   show_mss,
	input  wire [29:0]   show_window
);
	reg [31:0] frames, segments, marks, rewrites, value;
	reg writes; // the register at write_at takes write_data
	reg [11:0] write_at;
	reg [31:0] write_data;
	wire write = awvalid && wvalid && !bvalid;
	reg reads, shown; // shown: the values of the queue that is read are here
	reg [11:0] flows;
	reg [15:0] syns, fins, rsts;
	reg [13:0] mss;
	reg [29:0] window;
	reg [5:0] field;

	assign awready = write;
	assign wready = write;
	assign bresp = 2'b00;
	assign rresp = 2'b00;
	assign arready = !rvalid && !reads && !shown;

	always_ff @(posedge clk) begin
		if (bready)
			bvalid <= 1'b0;
		writes <= write;
		write_at <= awaddr;
		write_data <= wdata;
		if (write)
			bvalid <= 1'b1;
		if (writes && write_at[11:6] == 0)
			case (write_at[5:2])
			4'd1: {ecn, enable, clear} <= write_data[3:0];
			4'd2: avg_queue_time <= write_data[15:0];
			4'd3: updates <= write_data[5:0];
			4'd4: threshold <= write_data[3:0];
			4'd5: ecn_threshold <= write_data[3:0];
			4'd6: floor_bytes <= write_data[15:0];
			4'd7: aggregate_max <= write_data[29:0];
			4'd8: mss_max <= write_data[13:0];
			4'd9: idle_samples <= write_data[15:0];
			default: ;
			endcase
		// 0x000 + 4 i: parameters and counts of the block. 0x400 + 0x20 q + 4 i: queue q.
		if (arvalid && arready) begin
			show_q <= QW'(araddr >> 5);
			field <= {araddr[11:10] == 2'b01, araddr[11:6] == 0, araddr[5:2]};
		end
		if (rready)
			rvalid <= 1'b0;
		reads <= arvalid && arready;
		shown <= reads;
		{flows, syns, fins, rsts, mss, window} <= {show_flows, show_syns, show_fins, show_rsts, show_mss, show_window};
		case (field[3:0])
		4'd0: value <= 32'h46535701; // "FSW", version 1
		4'd1: value <= {28'b0, ecn, enable, clear};
		4'd2: value <= {16'b0, avg_queue_time};
		4'd3: value <= {26'b0, updates};
		4'd4: value <= {28'b0, threshold};
		4'd5: value <= {28'b0, ecn_threshold};
		4'd6: value <= {16'b0, floor_bytes};
		4'd7: value <= {2'b0, aggregate_max};
		4'd8: value <= {18'b0, mss_max};
		4'd9: value <= {16'b0, idle_samples};
		4'd10: value <= frames;
		4'd11: value <= segments;
		4'd12: value <= marks;
		4'd13: value <= rewrites;
		default: value <= '0;
		endcase
		if (shown) begin
			rvalid <= 1'b1;
			rdata <= '0;
			if (field[4])
				rdata <= value;
			else if (field[5])
				case (field[2:0])
				3'd0: rdata <= {20'b0, flows};
				3'd1: rdata <= {2'b0, window};
				3'd2: rdata <= {16'b0, syns};
				3'd3: rdata <= {16'b0, fins};
				3'd4: rdata <= {16'b0, rsts};
				3'd5: rdata <= {18'b0, mss};
				default: ;
				endcase
		end
		// These counts wrap, as counters that are polled do.
		frames <= frames + {31'b0, decided};
		segments <= segments + {31'b0, decided && tcp};
		marks <= marks + {31'b0, marked};
		rewrites <= rewrites + {31'b0, rewritten};
		if (rst) begin
			bvalid <= 1'b0;
			rvalid <= 1'b0;
			reads <= 1'b0;
			shown <= 1'b0;
			writes <= 1'b0;
			{ecn, enable, clear} <= 4'b0100;
			avg_queue_time <= 16'd6000; // 48 us at 125 MHz
			updates <= 6'd10;
			threshold <= 4'd2;          // 25 %
			ecn_threshold <= 4'd2;      // 25 %
			floor_bytes <= 16'd1461;
			aggregate_max <= '0;
			mss_max <= 14'd1460;
			idle_samples <= 16'd20833;  // 1 s
			frames <= '0;
			segments <= '0;
			marks <= '0;
			rewrites <= '0;
		end
	end
`ifdef FORMAL
`include "fairswitch_regs.svh"
`endif
endmodule
`default_nettype wire
