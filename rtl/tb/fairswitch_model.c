// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The model of FairSwitch in datapath/core, as functions that a C++ bench and Python call.
#include "../../datapath/core/fairq/fairswitch_frame.h"

#define QUEUES_MAX 16

static struct fairswitch_config config[QUEUES_MAX];
static struct fairswitch_state state[QUEUES_MAX];

void model_begin(unsigned q, unsigned queue_words, unsigned aggregate_max, unsigned floor, unsigned mss_max,
		 unsigned idle_samples, unsigned threshold, unsigned updates)
{
	config[q] = (struct fairswitch_config){
		.queue_words = queue_words, .aggregate_max_bytes = aggregate_max, .floor_bytes = (weir_u16)floor,
		.mss_max_bytes = (weir_u16)mss_max, .idle_samples = (weir_u16)idle_samples, .threshold = (weir_u8)threshold,
		.updates = (weir_u8)updates,
	};
	state[q] = (struct fairswitch_state){0};
}

void model_change(unsigned q, unsigned floor, unsigned updates)
{
	config[q].floor_bytes = (weir_u16)floor;
	config[q].updates = (weir_u8)updates;
}
void model_count(unsigned q, unsigned event) { fairswitch_count(&state[q], (enum fairswitch_event)event); }
void model_data(unsigned q, unsigned payload) { fairswitch_data(&config[q], &state[q], payload); }
void model_sample(unsigned q, unsigned words) { fairswitch_sample(&config[q], &state[q], words); }
int model_job(unsigned q) { return fairswitch_job(&config[q], &state[q]); }
int model_waits(unsigned q) { return state[q].stale || state[q].due; }

// flows, window, syns, fins, rsts, mss
void model_state(unsigned q, unsigned out[6])
{
	const struct fairswitch_state *s = &state[q];

	out[0] = s->flows;
	out[1] = s->window_bytes;
	out[2] = s->syns;
	out[3] = s->fins;
	out[4] = s->rsts;
	out[5] = s->mss_bytes;
}

// Rewrites the frame. Returns the event, + 4 for TCP, + 8 if marked, + 16 if the window changed, and the payload from bit 8.
unsigned model_frame(unsigned char *frame, unsigned bytes, unsigned window, unsigned over, unsigned clear)
{
	struct fairswitch_now now = {.window_bytes = window, .over = over != 0, .clear = (weir_u8)clear};
	struct fairswitch_seen seen = fairswitch_frame(frame, bytes, &now);

	return seen.event | seen.tcp << 2 | seen.marked << 3 | seen.rewritten << 4 | seen.payload_bytes << 8;
}
