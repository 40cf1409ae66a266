// Transfers enter the register stage in the order and number in which they were popped, and differ from them in edited words only.
	(* anyconst *) reg [7:0] f_n;
	reg [7:0] f_in = 0, f_mid = 0;
	reg [DATA_W-1:0] f_data;
	reg [SIDE_W-1:0] f_side;
	reg [4:0] f_hit;
	reg [5*WL-1:0] f_lane;
	reg [79:0] f_word;
	reg f_past = 0;
	wire [7:0] f_at1 = f_mid, f_at0 = f_mid + {7'd0, v1};
	logic [DATA_W-1:0] f_want;
	always_comb begin
		f_want = f_data;
		for (int w = 0; w < WORDS; w++)
			for (int e = 0; e < 5; e++)
				if (f_hit[e] && f_lane[e*WL +: WL] == WL'(w))
					f_want[w*16 +: 16] = {f_word[e*16 +: 8], f_word[e*16 + 8 +: 8]};
	end
	always @(posedge clk) begin
		f_past <= 1;
		f_in <= rst ? 8'd0 : f_in + 8'(beat_pop);
		f_mid <= rst ? 8'd0 : f_mid + 8'(v1 && ready);
		if (beat_pop && f_in == f_n) begin
			f_data <= beat_data;
			f_side <= {beat_keep, beat_last, beat_user};
			f_word <= edit_word;
			for (int e = 0; e < 5; e++) begin
				// The edit of word k acts in the transfer that has word k, counted from the frame's first transfer.
				f_hit[e] <= edit_enable[e] && {1'b0, edit_at[e*6 +: 6]} >= base && {2'b0, edit_at[e*6 +: 6]} < {1'b0, base} + 8'(WORDS);
				f_lane[e*WL +: WL] <= WL'(edit_at[e*6 +: 6] - base[5:0]);
			end
		end
	end
	always @(*) begin
		if (!f_past)
			assume(rst);
		else if (!rst) begin
			assert(base[WL-1:0] == 0 && (base < 64 || base == FAR)); // a whole number of transfers
			assert(f_in - f_mid == {7'd0, v0} + {7'd0, v1});
			if (v0 && f_at0 == f_n) begin
				assert(data0 == f_data && side0 == f_side && word0 == f_word && hit0 == f_hit);
				for (int e = 0; e < 5; e++)
					if (f_hit[e])
						assert(lane0[e*WL +: WL] == f_lane[e*WL +: WL]);
			end
			if (v1 && f_at1 == f_n)
				assert(data1 == f_want && side1 == f_side);
			assert(beat_pop == (ready && beat_valid && edit_valid)); // no deadlock: nothing else stops a transfer
		end
	end
