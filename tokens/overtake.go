package tokens

// list of attempts, intrusive so that registering one allocates nothing.
type list struct {
	head *Attempt
	n    int
}

func (l *list) add(at *Attempt) {
	at.prev, at.next = nil, l.head
	if l.head != nil {
		l.head.prev = at
	}
	l.head = at
	l.n++
}

func (l *list) remove(at *Attempt) {
	if at.prev != nil {
		at.prev.next = at.next
	} else {
		l.head = at.next
	}
	if at.next != nil {
		at.next.prev = at.prev
	}
	at.prev, at.next = nil, nil
	l.n--
}

// overtake sorts what is under way by the new floor and returns who has to be told.
// An attempt that has not passed the gate is settled by this alone. The shard is
// locked.
func (j *job) overtake(floor Generation) (cut []Cutter) {
	j.older = 0
	for at := j.attempts.head; at != nil; {
		next := at.next
		if at.Generation < floor {
			switch {
			case at.stage == stageAdmitted:
				at.stage = stageVetoed
				j.attempts.remove(at)
				cut = append(cut, at.Cutter)
			case at.stage == stageSending || at.stage == stageSent && at.AbortSent:
				at.stage = stageCut
				cut = append(cut, at.Cutter)
				j.older++
			default:
				j.older++
			}
		}
		at = next
	}
	for at := j.watchers.head; at != nil; at = at.next {
		if at.Generation < floor {
			cut = append(cut, at.Cutter)
		}
	}
	return cut
}
