// Only ECT becomes CE, only in a queue over its threshold, no other bit changes, and the checksum is RFC 1624's.
	function automatic [15:0] f_add(input [15:0] a, input [15:0] b);
		reg [16:0] f_s;
		f_s = {1'b0, a} + {1'b0, b};
		f_add = f_s[15:0] + {15'b0, f_s[16]};
	endfunction
	reg [15:0] f_word = 0, f_check = 0, f_word1 = 0, f_check1 = 0;
	reg f_over = 0, f_4 = 0, f_6 = 0, f_age = 0, f_over1 = 0, f_41 = 0, f_61 = 0, f_age1 = 0;
	wire [1:0] f_ecn = f_6 ? f_word[5:4] : f_word[1:0];
	wire [15:0] f_want = f_add(f_add(~f_check, ~f_word), new_word);
	always @(posedge clk) begin
		{f_age1, f_word1, f_check1, f_over1, f_41, f_61} <= {1'b1, word, check, over, ip4, ip6};
		{f_age, f_word, f_check, f_over, f_4, f_6} <= {f_age1, f_word1, f_check1, f_over1, f_41, f_61};
	end
	always @(*)
		if (f_age) begin
			assert(mark == (f_over && (f_4 || f_6) && (f_ecn == 1 || f_ecn == 2)));
			assert(mark4 == (mark && f_4));
			if (mark) begin
				assert((new_word ^ f_word) == (f_6 ? {10'b0, ~f_word[5:4], 4'b0} : {14'b0, ~f_word[1:0]}));
				if (!f_6)
					assert(new_check == ~f_want);
			end
		end
