package badgerstore

import (
	"reflect"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func changeOf(j tokens.Job, r tokens.Record) *change {
	return &change{entry: entry{key: recordKey(j)}, record: r}
}

func TestRecentRecordsAreBoundedAndTheNewestWins(t *testing.T) {
	var r recent
	for n := range 3 * maxRecent {
		r.put([]*change{changeOf(jobN(n), atFloor(1)), changeOf(job("hot"), atFloor(tokens.Generation(n+1)))}, uint64(n+1))
		if got, ok := r.get(recordKey(job("hot"))); !ok || got.version != uint64(n+1) || got.record.Floor != tokens.Generation(n+1) {
			t.Fatalf("after commit %d it holds %+v (%v)", n+1, got, ok)
		}
	}
	if n := len(r.young) + len(r.old); n > 2*maxRecent {
		t.Errorf("it holds %d records, at most %d are allowed", n, 2*maxRecent)
	}
	if _, ok := r.get(recordKey(jobN(0))); ok {
		t.Error("the oldest record is still there")
	}
}

func TestARecordThatIsNotKeptDoesNotLeaveItsPredecessor(t *testing.T) {
	for name, c := range map[string]*change{
		"large":         {entry: entry{key: recordKey(job("j")), value: make([]byte, maxRecentSize+1)}, record: atFloor(2)},
		"with a result": changeOf(job("j"), tokens.Record{Floor: 2, Seen: 2, Completed: true, Result: []byte("{ }")}),
	} {
		var r recent
		r.put([]*change{changeOf(job("j"), atFloor(1))}, 1)
		r.old, r.young = r.young, map[string]acked{}
		r.put([]*change{changeOf(job("j"), atFloor(1))}, 1)
		r.put([]*change{c}, 2)
		if got, ok := r.get(recordKey(job("j"))); ok {
			t.Errorf("%s: it still holds %+v", name, got)
		}
	}
}

// A field that refers to something has to be copied by unshared.
func TestUnsharedKnowsEveryReferenceInARecord(t *testing.T) {
	known := map[string]bool{"Record.Lease": true, "Record.Past": true, "Record.Result": true}
	var look func(t reflect.Type) (found []string)
	look = func(t reflect.Type) (found []string) {
		for i := range t.NumField() {
			f := t.Field(i)
			switch f.Type.Kind() {
			case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface, reflect.Chan, reflect.Func:
				found = append(found, t.Name()+"."+f.Name)
				if e := f.Type; e.Kind() != reflect.Interface && e.Kind() != reflect.Func && e.Elem().Kind() == reflect.Struct {
					found = append(found, look(e.Elem())...)
				}
			case reflect.Struct:
				found = append(found, look(f.Type)...)
			}
		}
		return found
	}
	for _, name := range look(reflect.TypeFor[tokens.Record]()) {
		if !known[name] {
			t.Errorf("unshared does not copy %s", name)
		}
	}
}
