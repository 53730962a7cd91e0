/*
 * One job of fenceproxy with its store, its writes, their connections to the upstream, and the death of the process. README.md
 * says what the model has, what it leaves out and what it assumes. What the code does under a lock is one step here, and whatever
 * else goes on may come between any two. Comments name the code that a step stands for.
 *
 * Macros choose what is checked: the bounds below, and one of the MUTANT_ names, each of which takes a safeguard away. The
 * test has the list.
 */

#ifndef N
#define N 2 /* writes, at most 3 */
#endif
#ifndef GENERATIONS
#define GENERATIONS 1, 2 /* of each */
#endif
#ifndef KEYED
#define KEYED 0 /* 1: all have the same key */
#endif
#ifndef CLAIMS
#define CLAIMS 1 /* claims and releases */
#endif
#ifndef CRASHES
#define CRASHES 1 /* deaths of the process */
#endif
#ifndef FAULTS
#define FAULTS 1 /* commits that fail */
#endif
#ifndef PATIENT
#define PATIENT 0 /* 1: nobody gives up, and the upstream answers whatever it gets */
#endif
#ifndef FORWARD
#define FORWARD 0 /* 1: on_unknown is forward */
#endif

/* The safeguards, one of which a mutant goes without. The test says which line of the code each stands for. */
#define GATE 1
#define BARRIER 2
#define REGISTRATION_UNDER_THE_LOCK 3
#define JUDGING_AFTER_THE_WAIT 4
#define CUT_IS_WAITED_FOR 5
#define CUT 6
#define WAKE 7
#define SENT_WHOLE_BEFORE_THE_LAST_WRITE 8
#define RESET 9
#define ABORT 10
#define LINGER 11
#define LINGER_AFTER_AN_EARLY_REPLY 12
#define LINGER_AFTER_A_RESTART 13
#define COMMIT_BEFORE_THE_FLOOR_COUNTS 14
#define CLAIM_RAISES 15
#define REGISTRATION_BEFORE_OVERTAKING 16
#define KEY_BEFORE_SENDING 17
#define DEAD_IS_UNKNOWN 18
#define RECORD_BEFORE_SETTLING 19
#define LIVE_BEFORE_THE_COMMIT 20
#define ARRIVED 21
#ifndef WITHOUT
#define WITHOUT 0
#endif
#define without(safeguard) (WITHOUT == safeguard)

#define CLAIMANT N /* who else has operations */
#define MOST 3     /* the highest generation that is claimed */

mtype:stage = { none, admitted, sending, sent, cut, vetoed };
mtype:op = { nothing, load, raise, start, record, claim, release, refused, yes, no };
mtype:state = { absent, inflight, applied, declined, notsent, unknown };

byte gen[N] = { GENERATIONS };

/* The disk: tokens.Record, and the WriteRecord of the key. */
byte diskFloor, diskSeen, diskAttempt;
bool diskIssued, diskDoubtful;
mtype:state diskKey = absent;

/* The process: tokens.Authority, its job and its attempts. */
bool up = true, failed, loaded, before, quiet;
byte floor, seen, older;
bool issued;
mtype:stage stage[N] = none;
bool asleep[N], live[N], tocut[N];
chan queue = [N+1] of { byte };
chan batch = [N+1] of { byte };
mtype:op op[N+1] = nothing;          /* of each write and of the claimant; then its answer */
mtype:state outcome[N] = absent;   /* to be recorded */

/* The way to the upstream: proxy.Send, proxy.gateConn, and what lies behind them. */
bool closed[N];                    /* by Send.Abort */
bool touched[N], whole[N];         /* something, or all of it, was written */
bool kernel[N], network[N];        /* something of it is in the proxy's kernel, or beyond and unread */
bool begun[N], working[N]; /* the upstream has begun it, and is at work on it */
bool decided[N]; /* it has executed it, or never will */
mtype:state reply[N] = absent;

/* Deaths. */
byte crashes, faults, dying;
bool alive[N];                     /* it is under way in the process */
bool killed[N+1];                    /* it was, in a process that died, and N is the one that commits */

/* What is only there for the assertions. */
byte begunMost, sentMost, promised, executed;
bool doubt;

byte i = N, j = N, x, v; /* of single steps, and always the same between them */

#define stale(w) (gen[w] < floor)
#define unissued(w) (issued && gen[w] > seen)
#define raises(w) (gen[w] > floor || !issued && gen[w] > seen)
#define counts(w) (stage[w] != none && stage[w] != vetoed)

/* What takeover.linger stands for: the time after which what had left the proxy's kernel was read or is lost, and after which the
 * upstream is not at work any more. */
#define lingered(w) (!network[w] && !working[w])

#define lingers(w) (!touched[w] || \
	outcome[w] == unknown && without(LINGER) || \
	outcome[w] != unknown && (whole[w] || without(LINGER_AFTER_AN_EARLY_REPLY)) || \
	lingered(w))

/* No attempt is forgotten, and none is counted twice. */
inline consistent() {
	v = 0;
	for (j : 0 .. N-1) { v = v + (counts(j) && stale(j) -> 1 : 0) }
	assert(v == older);
	v = 0
}

/* job.wake */
inline wake() { for (j : 0 .. N-1) { asleep[j] = false } }

/* Attempt.register */
inline register(w) {
	assert(stage[w] == none);
	assert(gen[w] >= promised); /* who was granted a job is not followed by an older write */
	printf("write %d: generation %d is admitted\n", w, gen[w]);
	stage[w] = admitted
}

/* job.overtake */
inline overtake() {
	older = 0;
	for (i : 0 .. N-1) {
		if
		:: counts(i) && stale(i) ->
			if
			:: stage[i] == admitted || stage[i] == sending && without(CUT_IS_WAITED_FOR) ->
				printf("write %d: vetoed\n", i);
				stage[i] = vetoed; tocut[i] = true
			:: stage[i] == sending && !without(CUT_IS_WAITED_FOR) ->
				assert(!whole[i]); /* what was sent whole is waited for */
				printf("write %d: cut\n", i);
				stage[i] = cut; tocut[i] = !without(CUT); older++
			:: else -> older++
			fi
		:: else
		fi
	}
	consistent()
}

/* Send.Abort, with SO_LINGER 0: no byte follows, and what the kernel holds is dropped. */
inline abort(w) { printf("write %d: its connection is closed\n", w); closed[w] = true; kernel[w] = kernel[w] && without(RESET) }

/* Authority.Settle, and the end of the exchange. What plays no part any more is set back. */
inline settle(w) {
	printf("write %d: settled\n", w);
	if
	:: stage[w] == vetoed -> stage[w] = none
	:: else ->
		assert(counts(w)); /* it is settled once */
		stage[w] = none;
		if
		:: stale(w) -> older--; if :: older == 0 && !without(WAKE) -> wake() :: else fi
		:: else
		fi
	fi;
	if :: KEYED -> live[w] = false; wake() :: else fi;
	consistent();
	closed[w] = true; touched[w] = false; whole[w] = false; reply[w] = absent;
	outcome[w] = absent; op[w] = nothing;
	if :: begun[w] -> kernel[w] = false; network[w] = false :: else fi
}

/* gateConn.Write behind the gate. */
inline put(w) {
	assert(diskFloor >= gen[w]); /* its floor is durable */
	assert(!KEYED || diskKey != absent);
	assert(gen[w] >= sentMost);  /* nothing newer was sent before */
	sentMost = gen[w];
	printf("write %d: bytes are written\n", w);
	kernel[w] = true; touched[w] = true
}

inline ask(who, what) { op[who] = what; queue!who }

proctype Writer(byte w)
{
	bool timer;
	atomic { up && !dying -> alive[w] = true };
	{
		skip;
admit: /* Authority.admit */
		atomic {
			if
			:: loaded && (stale(w) || unissued(w)) || failed -> op[w] = nothing; goto done
			:: else
			fi;
			if
			:: !loaded -> ask(w, load) /* judgeStored */
			:: else ->
				if
				:: raises(w) -> ask(w, raise)
				:: else ->
					if
					:: (older == 0 || without(BARRIER)) && !(before && quiet) ->
						if
						:: KEYED -> ask(w, start)
						:: !KEYED && without(REGISTRATION_UNDER_THE_LOCK) -> op[w] = nothing; goto late
						:: else -> op[w] = nothing; register(w); goto send
						fi
					:: else -> op[w] = nothing; asleep[w] = true; timer = (older == 0);
						printf("write %d: waits\n", w); goto await
					fi
				fi
			fi
		};
answered:
		atomic {
			op[w] == yes || op[w] == no ->
			if
			:: op[w] == no -> op[w] = nothing; goto done
			:: op[w] == yes && counts(w) || stage[w] == vetoed -> op[w] = nothing; goto send
			:: else -> goto admit
			fi
		};
await:
		if
		:: atomic { !asleep[w] && without(JUDGING_AFTER_THE_WAIT) -> timer = false; goto late }
		:: atomic { !asleep[w] && !without(JUDGING_AFTER_THE_WAIT) -> timer = false; goto admit }
		:: atomic { timer && !quiet -> timer = false; asleep[w] = false; goto admit }
		:: atomic { !PATIENT -> timer = false; asleep[w] = false; goto done } /* takeover-pending */
		fi;

late: /* only without a safeguard */
		skip;
		atomic { older == 0 -> register(w) };

send: /* Sender.Send. It may dial for long. Then Attempt.Gate, in Send.permitted. */
		atomic {
			if
			:: closed[w] || stage[w] != admitted && !without(GATE) -> goto lost
			:: else -> if :: stage[w] == admitted -> stage[w] = sending :: else fi
			fi;
			if
			:: true -> goto last
			:: true
			fi
		};
		atomic { /* a piece that is not the last */
			if
			:: closed[w] -> goto lost
			:: else -> put(w)
			fi
		};
		if
		:: true
		:: atomic { !PATIENT -> goto lost } /* the caller stalls, or the drain ends */
		:: PATIENT && w < N-1 -> atomic { closed[w] -> goto lost } /* it stalls until it is cut */
		:: atomic { reply[w] != absent -> goto early }
		fi;

last: /* gateConn.Write of the last piece */
		atomic { /* Attempt.SentWhole */
			if :: stage[w] == sending && !without(SENT_WHOLE_BEFORE_THE_LAST_WRITE) -> stage[w] = sent :: else fi
		};
		atomic {
			if
			:: closed[w] && reply[w] == absent -> goto lost
			:: closed[w] && reply[w] != absent -> goto early
			:: !closed[w] -> put(w); whole[w] = true
			:: !closed[w] && reply[w] != absent -> goto early /* it stands still: Send.Rests */
			fi
		};
		atomic {
			if
			:: reply[w] != absent && !closed[w] && (!kernel[w] || without(ARRIVED)) -> skip
			:: reply[w] != absent && (closed[w] || kernel[w] && !without(ARRIVED)) -> goto early /* Send.Arrived */
			:: reply[w] == absent && closed[w] -> goto lost
			:: !PATIENT -> goto lost /* the route's timeout */
			fi;
			/* exchange.reply */
			outcome[w] = reply[w];
			live[w] = live[w] && !without(RECORD_BEFORE_SETTLING);
			if
			:: KEYED -> ask(w, record)
			:: else -> settle(w); goto done
			fi
		};
		atomic { op[w] == yes || op[w] == no -> settle(w); goto done };

early: /* exchange.settleEarly */
		atomic {
			whole[w] = false; /* for all that is known */
			abort(w);
			outcome[w] = reply[w];
			if :: KEYED -> ask(w, record) :: else fi
		};
		goto end;

lost: /* exchange.settleGone */
		atomic {
			if :: !without(ABORT) -> abort(w) :: else fi;
			outcome[w] = (touched[w] -> unknown : notsent);
			printf("write %d: given up, %e\n", w, outcome[w]);
			doubt = doubt || FORWARD && touched[w];
			if :: KEYED -> ask(w, record) :: else fi
		};
end:
		atomic {
			(!KEYED || op[w] == yes || op[w] == no) && lingers(w) ->
			settle(w)
		};

done:
		atomic { alive[w] = false; assert(stage[w] == none); begun[w] = begun[w] || !network[w] && !kernel[w]; closed[w] = true }
	} unless { atomic { killed[w] -> killed[w] = false; dying--; timer = false } }
}

#include "authority.pml"
#include "world.pml"

init {
	atomic { run Writer(0); run Writer(1); if :: N > 2 -> run Writer(N-1) :: else fi }
}
