// No transfer is lost, duplicated, changed or reordered, for any number of transfers: transfer number f_n is the same in and out.
	(* anyconst *) reg [7:0] f_n;
	(* anyconst *) reg [WIDTH-1:0] f_data;
	reg [7:0] f_in = 0, f_out = 0;
	reg f_past = 0;
	always @(posedge clk) begin
		f_past <= 1;
		f_in <= rst ? 8'd0 : f_in + 8'(s_valid && s_ready);
		f_out <= rst ? 8'd0 : f_out + 8'(m_valid && m_ready);
	end
	always @(*) begin
		if (!f_past)
			assume(rst);
		else if (!rst) begin
			if (s_valid && f_in == f_n)
				assume(s_data == f_data);
			assert(f_in - f_out == {7'd0, front_valid} + {7'd0, behind_valid});
			assert(front_valid || !behind_valid);
			if (front_valid && f_out == f_n)
				assert(front == f_data);
			if (behind_valid && f_out + 8'd1 == f_n)
				assert(behind == f_data);
			// No deadlock: a transfer inside is offered, and with one free place the next is taken.
			assert(m_valid == (f_in != f_out));
			assert(s_ready == (f_in - f_out < 8'd2));
		end
	end
	// A transfer that is offered stays until it is taken.
	always @(posedge clk)
		if (f_past && !rst && !$past(rst) && $past(m_valid && !m_ready)) begin
			assert(m_valid);
			assert(m_data == $past(m_data));
		end
