package tokens

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// What stores keep is JSON. It is written by hand because it is written twice for every
// keyed write; a test holds it to encoding/json, byte for byte.

// EncodeRecord returns the form in which every engine stores a record.
func EncodeRecord(r Record) ([]byte, error) {
	if r.Result != nil { // may have any form, and is rare
		b, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode record: %w", err)
		}
		return b, nil
	}
	o := newObject(256)
	o.number("floor", uint64(r.Floor))
	o.number("seen", uint64(r.Seen))
	o.number("issued", uint64(r.Issued))
	if l := r.Lease; l != nil {
		o.open("lease")
		o.mustNumber("generation", int64(l.Generation))
		o.mustText("owner", l.Owner)
		o.mustText("id", l.ID)
		o.text("claim_id", l.ClaimID)
		o.mustNumber("ttl", l.TTL)
		o.mustNumber("until", l.Until)
		o.mustNumber("granted", l.Granted)
		o.signed("renewed", l.Renewed)
		o.close()
	}
	if len(r.Past) > 0 {
		o.openList("past")
		for i := range r.Past {
			p := &r.Past[i]
			o.open("")
			o.mustNumber("generation", int64(p.Generation))
			o.text("owner", p.Owner)
			o.text("id", p.ID)
			o.mustText("ended", string(p.Ended))
			o.close()
		}
		o.closeList()
	}
	o.flag("completed", r.Completed)
	if r.Tally != ([2]Tally{}) {
		o.openList("tally")
		for i := range r.Tally {
			t := &r.Tally[i]
			o.open("")
			o.mustNumber("generation", int64(t.Generation))
			o.signed("applied", t.Applied)
			o.signed("declined", t.Declined)
			o.signed("unknown", t.Unknown)
			o.close()
		}
		o.closeList()
	}
	o.signed("raised_at", r.RaisedAt)
	o.text("raised_by", r.RaisedBy)
	o.close()
	return o.b, nil
}

// EncodeWrite returns the form in which every engine stores a write, without its reply.
func EncodeWrite(w WriteRecord) ([]byte, error) {
	o := newObject(384)
	o.mustText("state", string(w.State))
	o.mustText("attempt", w.Attempt)
	o.mustNumber("generation", int64(w.Generation))
	o.open("fingerprint")
	o.mustText("head", w.Fingerprint.Head)
	o.text("body", w.Fingerprint.Body)
	o.close()
	o.mustText("method", w.Method)
	o.mustText("path", w.Path)
	o.mustText("route", w.Route)
	o.mustNumber("started", w.Started)
	o.signed("settled", w.Settled)
	o.signed("expires", w.Expires)
	o.signed("status", int64(w.Status))
	o.text("location", w.Location)
	o.flag("has_reply", w.HasReply)
	o.flag("resolved", w.Resolved)
	o.flag("doubtful", w.Doubtful)
	o.text("key", w.Key)
	o.close()
	return o.b, nil
}

// object is a JSON object that is being written. The methods without must leave out a
// zero value. Names need no escapes.
type object struct {
	b []byte
}

func newObject(size int) object { return object{append(make([]byte, 0, size), '{')} }

// name begins a member; an empty one begins an element of a list.
func (o *object) name(name string) {
	if last := o.b[len(o.b)-1]; last != '{' && last != '[' {
		o.b = append(o.b, ',')
	}
	if name != "" {
		o.b = append(append(append(o.b, '"'), name...), '"', ':')
	}
}

func (o *object) open(name string)     { o.name(name); o.b = append(o.b, '{') }
func (o *object) close()               { o.b = append(o.b, '}') }
func (o *object) openList(name string) { o.name(name); o.b = append(o.b, '[') }
func (o *object) closeList()           { o.b = append(o.b, ']') }

func (o *object) mustNumber(name string, n int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, n, 10)
}

func (o *object) signed(name string, n int64) {
	if n != 0 {
		o.mustNumber(name, n)
	}
}

func (o *object) number(name string, n uint64) {
	if n != 0 {
		o.name(name)
		o.b = strconv.AppendUint(o.b, n, 10)
	}
}

func (o *object) flag(name string, f bool) {
	if f {
		o.name(name)
		o.b = append(o.b, "true"...)
	}
}

func (o *object) text(name, s string) {
	if s != "" {
		o.mustText(name, s)
	}
}

func (o *object) mustText(name, s string) {
	o.name(name)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			// What needs escapes, or might: the library knows them all.
			quoted, _ := json.Marshal(s) // a string does not fail
			o.b = append(o.b, quoted...)
			return
		}
	}
	o.b = append(append(append(o.b, '"'), s...), '"')
}
