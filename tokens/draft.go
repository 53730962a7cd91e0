package tokens

import "slices"

// draft is what operations change before it is committed.
type draft struct {
	Snapshot
	writes  map[string]WriteRecord // made with the first
	touched []string               // keys in writes that changed, in order, each once
	purged  map[string]bool        // made with the first
	changed bool
}

// set changes the record.
func (d *draft) set(r Record) { d.Record, d.changed = r, true }

// setWrite changes a write.
func (d *draft) setWrite(key string, w WriteRecord) {
	if d.writes == nil {
		d.writes = make(map[string]WriteRecord, 2)
	}
	d.writes[key] = w
	if !slices.Contains(d.touched, key) {
		d.touched = append(d.touched, key)
	}
	d.changed = true
}

// purge removes a write.
func (d *draft) purge(key string) {
	if d.purged == nil {
		d.purged = make(map[string]bool)
	}
	d.purged[key] = true
	d.setWrite(key, WriteRecord{})
}

// change is what is to be committed.
func (d *draft) change(key Job) Change {
	c := Change{Job: key, Expect: d.Version, Record: d.Record}
	if len(d.touched) > 0 {
		c.Writes = make([]WriteChange, 0, len(d.touched))
	}
	for _, k := range d.touched {
		w := d.writes[k]
		c.Writes = append(c.Writes, WriteChange{Key: k, Record: w, Purge: d.purged[k] && w.State == ""})
	}
	return c
}
