// The count is exact between its ends, stops at both, and no counter wraps.
	reg f_past = 0;
	always @(posedge clk)
		f_past <= 1;
	wire signed [14:0] f_base = (sampled && !active && idle_samples != 0 && {1'b0, idle} + 17'd1 >= {1'b0, idle_samples}) ? 15'sd0 : $signed({3'b0, flows});
	wire signed [14:0] f_exact = f_base + $signed({13'b0, opens}) - $signed({13'b0, aborts}) - $signed({14'b0, closes});
	wire [11:0] f_want = f_exact < 0 ? 12'd0 : f_exact > 4095 ? 12'd4095 : f_exact[11:0];
	always @(*) begin
		if (!f_past)
			assume(rst);
		// at most one kind, as the block gives them
		assume(opens < 3 && aborts < 3);
		assume(3'(opens != 0) + 3'(closes) + 3'(aborts != 0) <= 1);
	end
	always @(posedge clk)
		if (f_past && !$past(rst) && !rst) begin
			assert(idle != 16'hffff); // the idle time does not wrap either
			assert(flows == $past(f_want));
			assert(syns >= $past(syns) || $past(sampled));
			assert(fins >= $past(fins) || $past(sampled));
			assert(rsts >= $past(rsts) || $past(sampled));
			assert($past(sampled) || syns - $past(syns) <= 2);
			assert(mss >= $past(mss));
			assert($past(changes) || flows == $past(flows)); // each change is seen by the law
		end
