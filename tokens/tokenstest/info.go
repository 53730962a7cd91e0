package tokenstest

import "testing"

func infoCases() []conformance {
	return []conformance{
		{"InfoNamesTheStoreInAFormThatFitsAHeader", infoNames},
		{"InfoIsTheSameAfterReopening", infoStable},
		{"InfoSaysWhenAnExclusiveStoreWasOpened", infoOpened},
	}
}

// The id begins every lease id, which travels in a header and is cut at a dot.
func infoNames(t *testing.T, o Opener) {
	info := open(t, o).Info()
	if info.Engine == "" {
		t.Error("the engine has no name")
	}
	if info.ID == "" {
		t.Error("the store has no id")
	}
	for _, c := range []byte(info.ID) {
		if c < 0x21 || c > 0x7e || c == '.' || c == ',' || c == '"' || c == '\\' {
			t.Errorf("store id %q holds byte %q", info.ID, c)
		}
	}
}

func infoStable(t *testing.T, o Opener) {
	s := open(t, o)
	before := s.Info()
	s.commit(job("j"), 0, sample(1))
	if now := s.Info(); now != before {
		t.Errorf("info changed while the store was open: %+v, then %+v", before, now)
	}
	for range 2 {
		s.close()
		s = open(t, o)
		after := s.Info()
		if after.ID != before.ID || after.Epoch != before.Epoch || after.Engine != before.Engine || after.Exclusive != before.Exclusive {
			t.Errorf("info after reopening: %+v, want the id, epoch, engine and exclusiveness of %+v", after, before)
		}
	}
}

func infoOpened(t *testing.T, o Opener) {
	s := open(t, o)
	if !s.Info().Exclusive {
		if !s.Info().Opened.IsZero() || !s.Info().LastKnown.IsZero() {
			t.Errorf("a shared store says when it was opened: %+v", s.Info())
		}
		return
	}
	s.commit(job("j"), 0, sample(1))
	first := s.Info().Opened
	if first.IsZero() {
		t.Fatal("an exclusive store does not say when it was opened")
	}
	if now := s.load(job("j")).Now; now.Before(first) {
		t.Errorf("the store's time %v is before it was opened, %v", now, first)
	}
	s.close()
	s = open(t, o)
	info := s.Info()
	if info.LastKnown.IsZero() || info.LastKnown.Before(first) {
		t.Errorf("reopened: the previous process was last known to run at %v, but it opened the store at %v", info.LastKnown, first)
	}
	if info.Opened.Before(info.LastKnown) {
		t.Errorf("reopened at %v, before the previous process was last known to run, %v", info.Opened, info.LastKnown)
	}
}
