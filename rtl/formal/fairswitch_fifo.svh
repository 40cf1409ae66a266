// Entry number f_n comes out once, in its turn, as it went in; the FIFO never holds more than DEPTH.
	(* anyconst *) reg [7:0] f_n;
	(* anyconst *) reg [WIDTH-1:0] f_data;
	reg [7:0] f_in = 0, f_out = 0;
	reg f_past = 0;
	always @(posedge clk) begin
		f_past <= 1;
		f_in <= rst ? 8'd0 : f_in + 8'(push);
		f_out <= rst ? 8'd0 : f_out + 8'(pop);
	end
	always @(*) begin
		assume(!(push && full));
		assume(!(pop && !valid));
		if (!f_past)
			assume(rst);
		else if (!rst) begin
			if (push && f_in == f_n)
				assume(in == f_data);
			assert(used == f_in - f_out);
			assert(used <= DEPTH);
			assert(valid == (f_in != f_out));
			assert(more == (used > 1));
			assert(full == (used == DEPTH));
			assert(tail == f_in[ADDR-1:0]);
			assert(head == f_out[ADDR-1:0] + ADDR'(valid));
			if (f_n - f_out < {2'b0, used})
				assert(store[f_n[ADDR-1:0]] == f_data);
			if (valid && f_out == f_n)
				assert(out == f_data);
		end
	end
