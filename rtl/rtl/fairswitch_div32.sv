// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// DIV_32: divides 32 bits by 18 bits, two bits of the quotient per cycle. done comes 18 cycles after start, as with the
// paper's divider. The divisor must not be 0. start is ignored while it works.
`default_nettype none
module fairswitch_div32 (
	input  wire        clk,
	input  wire        rst,
	input  wire        start,
	input  wire [31:0] dividend,
	input  wire [17:0] divisor,
	output reg  [31:0] quotient,
	output reg         done
);
	reg [17:0] one, rest;     // rest < one
	reg [18:0] two;           // 2 * one
	reg [19:0] three;         // 3 * one
	reg [4:0] steps;
	reg tripled, busy;

	wire [19:0] more = {rest, quotient[31:30]};
	wire [20:0] less1 = {1'b0, more} - {3'b0, one};
	wire [20:0] less2 = {1'b0, more} - {2'b0, two};
	wire [20:0] less3 = {1'b0, more} - {1'b0, three};

	always_ff @(posedge clk) begin
		done <= 1'b0;
		if (!busy) begin
			if (start) begin
				busy <= 1'b1;
				quotient <= dividend;
				one <= divisor;
				two <= {divisor, 1'b0};
				rest <= '0;
				steps <= 5'd17;
				tripled <= 1'b0;
			end
		end else begin
			steps <= steps - 1'b1;
			done <= steps == 1;
			busy <= steps != 1;
			tripled <= 1'b1;
			if (!tripled)
				three <= {2'b0, one} + {1'b0, two};
			else begin
				quotient <= {quotient[29:0], !less2[20], !less3[20] || (less2[20] && !less1[20])};
				rest <= !less3[20] ? less3[17:0] : !less2[20] ? less2[17:0] : !less1[20] ? less1[17:0] : more[17:0];
			end
		end
		if (rst) begin
			busy <= 1'b0;
			done <= 1'b0;
		end
	end
endmodule
`default_nettype wire
