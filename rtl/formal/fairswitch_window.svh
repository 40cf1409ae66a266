// For every window, shift and field: the field written is the least that grants the window, and is below the field that it replaces.
	wire [3:0] f_shift = word[1] ? 4'd0 : word[11:8] == 15 ? 4'd14 : word[11:8];
	reg [29:0] f_w1 = 0, f_w2 = 0, f_w3 = 0, f_w4 = 0;
	reg [3:0] f_s1 = 0, f_s2 = 0, f_s3 = 0, f_s4 = 0;
	reg [15:0] f_f1 = 0, f_f2 = 0, f_f3 = 0, f_f4 = 0, f_g4 = 0;
	reg f_a1 = 0, f_a2 = 0, f_a3 = 0, f_a4 = 0;
	reg [2:0] f_age = 0;
	always @(posedge clk) begin
		f_age <= f_age == 7 ? 3'd7 : f_age + 1'b1;
		{f_w1, f_s1, f_f1, f_a1} <= {window, f_shift, field, word[4]};
		{f_w2, f_s2, f_f2, f_a2} <= {f_w1, f_s1, f_f1, f_a1};
		{f_w3, f_s3, f_f3, f_a3} <= {f_w2, f_s2, f_f2, f_a2};
		{f_w4, f_s4, f_f4, f_a4} <= {f_w3, f_s3, f_f3, f_a3};
		f_g4 <= granted;
	end
	wire [44:0] f_given = {29'b0, f_g4} << f_s4, f_less = {29'b0, f_g4 - 16'd1} << f_s4;
	always @(*)
		if (f_age >= 4) begin
			if (smaller) begin
				assert(f_a4 && f_w4 != 0);
				assert(f_g4 < f_f4 && f_g4 != 0);
				assert(f_given >= {15'b0, f_w4}); // it grants the window,
				assert(f_less < {15'b0, f_w4});   // and one less would not
			end else // nothing to write: no ACK, no grant, or the field is within it as far as a field can tell
				assert(!f_a4 || f_w4 == 0 || f_f4 == 0 || ({29'b0, f_f4 - 16'd1} << f_s4) < {15'b0, f_w4});
		end
