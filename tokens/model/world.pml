/* What nobody in the proxy decides: the network, the upstream, and when the process dies. Part of fence.pml. */

inline begin(w) {
	network[w] = false;
	if
	:: !begun[w] ->
		printf("write %d: the upstream begins generation %d\n", w, gen[w]);
		begun[w] = true; working[w] = true;
		assert(gen[w] >= begunMost); /* the order */
		begunMost = gen[w];
		for (j : 0 .. N-1) {
			assert(!(working[j] && gen[j] < gen[w])) /* and what is older is not being worked on */
		}
	:: else
	fi
}

inline execute(w) {
	if
	:: KEYED && !decided[w] ->
		printf("write %d: executed\n", w);
		decided[w] = true; executed++;
		assert(executed == 1 || FORWARD && doubt) /* a key is executed once */
	:: else
	fi
}

/* Its last word, if the request was written whole; else it may go on with what it has got. */
inline answer(w, how) {
	printf("write %d: the upstream answers, %e\n", w, how);
	reply[w] = how; working[w] = !whole[w] || kernel[w]
}

#define CONNECTION(w) \
	:: d_step { tocut[w] -> tocut[w] = false; abort(w) } \
	:: d_step { kernel[w] -> kernel[w] = false; network[w] = true; working[w] = working[w] && !(whole[w] && reply[w] != absent) } \
	:: d_step { network[w] -> begin(w) } \
	:: d_step { network[w] && closed[w] -> printf("write %d: lost on its way\n", w); network[w] = false } \
	:: d_step { working[w] && reply[w] == absent && !closed[w] -> execute(w); answer(w, applied) } \
	:: d_step { working[w] && reply[w] == absent && !closed[w] && KEYED -> decided[w] = true; answer(w, declined) } \
	:: d_step { working[w] && reply[w] == absent && !closed[w] && KEYED && !PATIENT -> doubt = doubt || FORWARD; execute(w); answer(w, unknown) } \
	:: d_step { working[w] && closed[w] -> working[w] = false } \
	:: d_step { working[w] && closed[w] && reply[w] == absent && KEYED -> execute(w); working[w] = false }

/* The cuts that were ordered, the kernels, the network and the upstream. */
active proctype World() provided (dying == 0)
{
end_world:
	do
	CONNECTION(0)
	CONNECTION(1)
#if N > 2
	CONNECTION(2)
#endif
#ifdef SITUATIONS
#include "situations.pml"
#endif
	:: d_step { quiet && (alive[0] || lingered(0)) && (alive[1] || lingered(1)) && (N < 3 || alive[N-1] || lingered(N-1)) -> printf("the dead have lingered\n"); quiet = false }
	od
}

/* kill -9, and the next process. */
active proctype Crash() provided (dying == 0)
{
end_crash:
	do
	:: d_step {
			up && crashes < CRASHES ->
			printf("the process is killed\n");
			up = false; crashes++;
			for (i : 0 .. N-1) {
				if
				:: alive[i] -> alive[i] = false; killed[i] = true; dying++; doubt = doubt || FORWARD
				:: else
				fi;
				closed[i] = closed[i] || killed[i];
				kernel[i] = false;
				stage[i] = none; asleep[i] = false; live[i] = false; tocut[i] = false;
				touched[i] = false; whole[i] = false; reply[i] = absent; outcome[i] = absent; op[i] = nothing
			}
			if :: op[CLAIMANT] != nothing -> op[CLAIMANT] = no :: else fi;
			do :: queue?x :: empty(queue) -> break od;
			do :: batch?x :: empty(batch) -> break od;
			x = 0;
			floor = 0; seen = 0; issued = false; older = 0; loaded = false; failed = false; before = false; quiet = false;
			forgetNext();
			killed[N] = true; dying++
		}
	:: d_step { !up -> printf("the next process starts\n"); up = true; quiet = !without(LINGER_AFTER_A_RESTART) }
	od
}
