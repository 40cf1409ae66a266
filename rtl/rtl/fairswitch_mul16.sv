// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Multiplies 16 bits by 18 bits, one bit per cycle: it is off the critical path, as the divider is. The product must fit in
// 32 bits. done comes 17 cycles after start. start is ignored while it works.
`default_nettype none
module fairswitch_mul16 (
	input  wire        clk,
	input  wire        rst,
	input  wire        start,
	input  wire [15:0] a,
	input  wire [17:0] b,
	output reg  [31:0] product,
	output reg         done
);
	reg [15:0] bits; // of a, the highest first
	reg [17:0] factor;
	reg [4:0] steps;

	always_ff @(posedge clk) begin
		done <= 1'b0;
		if (steps == 0) begin
			if (start) begin
				bits <= a;
				factor <= b;
				product <= '0;
				steps <= 5'd16;
			end
		end else begin
			steps <= steps - 1'b1;
			done <= steps == 1;
			bits <= bits << 1;
			product <= {product[30:0], 1'b0} + {14'b0, factor & {18{bits[15]}}};
		end
		if (rst) begin
			steps <= '0;
			done <= 1'b0;
		end
	end
endmodule
`default_nettype wire
