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
			:: !closed[w] -> put(w); whole[w] = true; working[w] = working[w] && reply[w] == absent
			:: !closed[w] && reply[w] != absent -> goto early /* it stands still: Send.Rests */
			fi
		};
		atomic {
			if
			:: reply[w] != absent -> skip
			:: closed[w] -> goto lost
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
		atomic { abort(w); outcome[w] = reply[w]; if :: KEYED -> ask(w, record) :: else fi };
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

/* Who claims the job, since leases run out, and gives it back. */
active proctype Claimant() provided (dying == 0)
{
	byte n;
	do
	:: n < CLAIMS ->
		atomic {
			up -> n++;
			if
			:: failed -> op[CLAIMANT] = no
			:: !failed -> ask(CLAIMANT, claim)
			:: !failed -> ask(CLAIMANT, release)
			fi
		};
		atomic { op[CLAIMANT] == yes || op[CLAIMANT] == no -> op[CLAIMANT] = nothing }
	:: n == CLAIMS -> break
	od
}

/* What operations come to, in their order: the rules of tokens on what is on the disk and what the ones before have changed. */
byte nextFloor, nextSeen, nextAttempt;
bool nextIssued, nextDoubtful, changed;
mtype:state nextKey = absent;

inline decide() {
	nextFloor = diskFloor; nextSeen = diskSeen; nextIssued = diskIssued;
	nextKey = diskKey; nextAttempt = diskAttempt; nextDoubtful = diskDoubtful;
	do
	:: nempty(queue) ->
		queue?x; batch!x;
		if
		:: op[x] == load
		:: op[x] == raise || op[x] == start -> /* judge */
			if
			:: gen[x] < nextFloor || nextIssued && gen[x] > nextSeen -> op[x] = refused
			:: else ->
				v = (gen[x] > nextFloor || !nextIssued && gen[x] > nextSeen);
				if
				:: op[x] == raise && v -> /* follow */
					nextFloor = (gen[x] > nextFloor -> gen[x] : nextFloor);
					nextSeen = (gen[x] > nextSeen -> gen[x] : nextSeen);
					changed = true
				:: op[x] == raise && !v
				:: op[x] == start && v -> op[x] = raise /* judge again */
				:: op[x] == start && !v -> /* judgeKey, Attempt.begin */
					if
					:: nextKey == applied || nextKey == inflight && live[nextAttempt] -> op[x] = refused
					:: nextKey == unknown && !FORWARD -> op[x] = refused
					:: nextKey == inflight && !live[nextAttempt] && !FORWARD && !without(DEAD_IS_UNKNOWN) -> op[x] = refused
					:: else ->
						nextDoubtful = (nextKey == inflight || nextKey == unknown);
						nextKey = inflight; nextAttempt = x; live[x] = !without(LIVE_BEFORE_THE_COMMIT);
						changed = true
					fi
				fi
			fi
		:: op[x] == record -> /* settled, unless it is another's */
			if
			:: nextAttempt == x ->
				nextKey = (nextDoubtful && outcome[x] != applied -> unknown : outcome[x]);
				changed = true
			:: else
			fi
		:: op[x] == claim ->
			if
			:: nextSeen < MOST ->
				nextSeen = (nextFloor > nextSeen + 1 -> nextFloor : nextSeen + 1);
				nextIssued = true; changed = true;
				nextFloor = (without(CLAIM_RAISES) -> nextFloor : nextSeen)
			:: else -> op[x] = refused
			fi
		:: op[x] == release -> /* closed */
			if
			:: nextIssued && nextFloor == nextSeen -> nextFloor = nextSeen + 1; changed = true
			:: else -> op[x] = refused
			fi
		fi
	:: empty(queue) -> break
	od;
	x = 0; v = 0
}

inline write() {
	printf("the disk: floor %d, key %e\n", nextFloor, nextKey);
	assert(nextFloor >= diskFloor); /* the durable floor never falls */
	diskFloor = nextFloor; diskSeen = nextSeen; diskIssued = nextIssued;
	diskKey = (nextKey == inflight && without(KEY_BEFORE_SENDING) -> diskKey : nextKey); diskAttempt = nextAttempt; diskDoubtful = nextDoubtful
}

inline forgetNext() {
	nextFloor = 0; nextSeen = 0; nextAttempt = 0; nextIssued = false; nextDoubtful = false; nextKey = absent; changed = false
}

/* Authority.serve. Nobody but it changes the disk, so loading and committing are one step. */
active proctype Serve()
{
	bool err, known;
serve:
	{
		skip;
end_serve:
	do
	:: atomic { /* serveBatch, try */
			up && !dying && nempty(queue) ->
			err = failed; known = diskFloor > 0;
			decide();
#if WITHOUT == COMMIT_BEFORE_THE_FLOOR_COUNTS
			floor = nextFloor; seen = nextSeen; issued = nextIssued; overtake()
		};
		atomic {
#endif
			if
			:: err || !changed
			:: !err && changed -> write()
			:: !err && changed && faults < FAULTS -> faults++; err = true /* ErrRefused */
			:: !err && changed && faults < FAULTS -> faults++; err = true; failed = true; loaded = false /* ErrUnknown */
			:: !err && changed && faults < FAULTS -> faults++; err = true; failed = true; loaded = false; write()
			fi;
			doubt = doubt || FORWARD && err
		};
		d_step { /* publish, finish */
			if
			:: !err ->
				if :: !loaded -> before = known :: else fi;
				if :: without(REGISTRATION_BEFORE_OVERTAKING) -> floor = diskFloor; overtake() :: else fi;
				v = len(batch);
				do
				:: v > 0 ->
					batch?x; batch!x; v--;
					if :: op[x] == start -> register(x); live[x] = true :: else fi
				:: else -> break
				od;
				printf("in memory: floor %d\n", diskFloor);
				floor = diskFloor; seen = diskSeen; issued = diskIssued;
				if :: !without(REGISTRATION_BEFORE_OVERTAKING) -> overtake() :: else fi;
				if :: !loaded || changed -> wake() :: else fi;
				loaded = true
			:: else
			fi;
			do
			:: nempty(batch) ->
				batch?x;
				if
				:: err -> if :: op[x] == start -> live[x] = false :: else fi; op[x] = no
				:: !err && op[x] != refused ->
					if :: x == CLAIMANT -> promised = (diskSeen > diskFloor -> diskSeen : diskFloor) :: else fi;
					op[x] = yes
				:: !err && op[x] == refused -> op[x] = no
				fi
			:: empty(batch) -> break
			od;
			err = false; known = false; x = 0; v = 0; forgetNext()
		}
	od
	} unless { atomic { killed[N] -> killed[N] = false; dying--; err = false; known = false } };
	goto serve
}

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
	reply[w] = how; working[w] = !whole[w]
}

#define CONNECTION(w) \
	:: d_step { tocut[w] -> tocut[w] = false; abort(w) } \
	:: d_step { kernel[w] -> kernel[w] = false; network[w] = true } \
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

init {
	atomic { run Writer(0); run Writer(1); if :: N > 2 -> run Writer(N-1) :: else fi }
}
