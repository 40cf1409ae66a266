// Each count grows by the frames that came, in all its 32 bits, and is read as it is. Only a write changes a parameter.
	reg f_past = 0;
	always @(posedge clk)
		f_past <= 1;
	always @(posedge clk)
		if (f_past && !$past(rst)) begin
			assert(frames == $past(frames) + {31'b0, $past(decided)});
			assert(segments == $past(segments) + {31'b0, $past(decided && tcp)});
			assert(marks == $past(marks) + {31'b0, $past(marked)});
			assert(rewrites == $past(rewrites) + {31'b0, $past(rewritten)});
			assert($past(field[3:0]) != 10 || value == $past(frames));
			assert($past(field[3:0]) != 11 || value == $past(segments));
			assert($past(field[3:0]) != 12 || value == $past(marks));
			assert($past(field[3:0]) != 13 || value == $past(rewrites));
			assert(!$past(shown && field[4]) || rdata == $past(value));
			assert($past(writes) || {ecn, enable, clear, avg_queue_time, updates, threshold, ecn_threshold, floor_bytes, aggregate_max,
			       mss_max, idle_samples} == $past({ecn, enable, clear, avg_queue_time, updates, threshold, ecn_threshold,
			       floor_bytes, aggregate_max, mss_max, idle_samples}));
		end
