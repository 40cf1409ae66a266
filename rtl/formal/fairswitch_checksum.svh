// Equal to equation 3 of RFC 1624, word after word, for every checksum, change, and order of carries; nothing changes it if no word does.
	function automatic [15:0] f_add(input [15:0] a, input [15:0] b);
		reg [16:0] f_s;
		f_s = {1'b0, a} + {1'b0, b};
		f_add = f_s[15:0] + {15'b0, f_s[16]};
	endfunction
	reg [15:0] f_hc1 = 0, f_hc2 = 0, f_hc3 = 0, f_hc4 = 0, f_o1 = 0, f_n1 = 0;
	reg [2:0] f_age = 0;
	(* anyseq *) wire [15:0] f_word; // the first word, with these reserved bits
	wire [15:0] f_old = {f_word[15:12], reserved, f_word[7:0]}, f_new = {f_word[15:12], 4'b0, f_word[7:0]};
	wire [15:0] f_first = cleared ? ~f_add(f_add(~check, ~f_old), f_new) : check;
	wire [15:0] f_second = changed ? ~f_add(f_add(~f_hc1, ~f_o1), f_n1) : f_hc1;
	always @(posedge clk) begin
		f_age <= f_age == 7 ? 3'd7 : f_age + 1'b1;
		f_hc1 <= f_first;
		{f_o1, f_n1} <= {old_word, new_word};
		f_hc2 <= f_second;
		f_hc3 <= f_hc2;
		f_hc4 <= f_hc3;
	end
	always @(*)
		if (f_age >= 4)
			assert(sum == f_hc4);
