/* What commits: operations that queue, the rules, the disk. Part of fence.pml. */

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
