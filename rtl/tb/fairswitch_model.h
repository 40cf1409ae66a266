// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef WEIR_RTL_MODEL_H
#define WEIR_RTL_MODEL_H

extern "C" {
void model_begin(unsigned q, unsigned queue_words, unsigned aggregate_max, unsigned floor, unsigned mss_max,
		 unsigned idle_samples, unsigned threshold, unsigned updates);
void model_change(unsigned q, unsigned floor, unsigned updates);
void model_count(unsigned q, unsigned event);
void model_data(unsigned q, unsigned payload);
void model_sample(unsigned q, unsigned words);
int model_job(unsigned q);
int model_waits(unsigned q);
void model_state(unsigned q, unsigned out[6]);
unsigned model_frame(unsigned char *frame, unsigned bytes, unsigned window, unsigned over, unsigned clear);
}

#endif
