package tokens

// Tally counts settled writes of a generation.
type Tally struct {
	Generation Generation `json:"generation"`
	Applied    int64      `json:"applied,omitempty"`
	Declined   int64      `json:"declined,omitempty"`
	Unknown    int64      `json:"unknown,omitempty"`
}

func (t *Tally) add(o Outcome) {
	switch o {
	case Applied:
		t.Applied++
	case Declined:
		t.Declined++
	case OutcomeUnknown:
		t.Unknown++
	}
}
