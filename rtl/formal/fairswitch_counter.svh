// The count is exact between its ends, stops at both, and no counter wraps.
	reg f_past = 0;
	always @(posedge clk)
		f_past <= 1;
	reg [15:0] f_passed = 0; // samples without data
	reg f_recent = 0, f_recent2 = 0;
	reg [15:0] f_limit = 0, f_limit2 = 0; // idle_samples, one and two cycles ago
	wire f_expires = sampled && !active && f_limit2 != 0 && {1'b0, f_passed} + 17'd1 >= {1'b0, f_limit2};
	always @(posedge clk) begin
		f_limit <= idle_samples;
		f_limit2 <= f_limit;
		f_recent <= sampling || rst;
		f_recent2 <= f_recent;
		if (rst)
			f_passed <= 0;
		else if (sampled)
			f_passed <= active || never || late ? 16'd0 : f_passed + 16'd1;
	end
	wire signed [14:0] f_base = f_expires ? 15'sd0 : $signed({3'b0, flows});
	wire signed [14:0] f_exact = f_base + $signed({13'b0, opens}) - $signed({13'b0, aborts}) - $signed({14'b0, closes});
	wire [11:0] f_want = f_exact < 0 ? 12'd0 : f_exact > 4095 ? 12'd4095 : f_exact[11:0];
	wire f_changes = (f_expires && flows != 0) || f_want != f_base[11:0];
	function automatic [15:0] f_added(input [15:0] f_value, input [1:0] f_by);
		f_added = {1'b0, f_value} + {15'b0, f_by} > 17'd65535 ? 16'd65535 : f_value + {14'b0, f_by};
	endfunction
	wire [15:0] f_syns = f_added(f_expires ? 16'd0 : syns, opens), f_fins = f_added(f_expires ? 16'd0 : fins, {1'b0, closes});
	wire [15:0] f_rsts = f_added(f_expires ? 16'd0 : rsts, aborts);
	always @(*) begin
		if (!f_past)
			assume(rst);
		if (f_recent || f_recent2)
			assume(!sampling); // avg_32 takes 4 cycles for a queue
		// at most one kind, as the block gives them
		assume(opens < 3 && aborts < 3);
		assume(3'(opens != 0) + 3'(closes) + 3'(aborts != 0) <= 1);
	end
	always @(posedge clk)
		if (f_past && !$past(rst) && !rst) begin
			assert(f_passed != 16'hffff && idle == f_passed + 16'd1); // the idle time does not wrap either
			assert(f_recent || f_recent2 || late == (f_limit != 0 && idle >= f_limit));
			assert(never == (f_limit == 0));
			assert(expires == f_expires);
			assert(flows == $past(f_want));
			assert(syns == $past(f_syns));
			assert(fins == $past(f_fins));
			assert(rsts == $past(f_rsts));
			assert(mss == $past(data && length > mss ? length : mss));
			assert($past(changes) == $past(f_changes)); // the law sees each change, and no other
		end
