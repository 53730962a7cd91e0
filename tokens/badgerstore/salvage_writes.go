package badgerstore

import (
	"strings"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// salvagedAttempt is the attempt of a write of which only the key can be read.
const salvagedAttempt = "salvaged"

// rebuildWrites returns the entries of the keyed writes that were found, those of each
// write together, and makes their indexes anew. A purged write stays purged. A key is
// never free for what was lost: one whose newest record can not be understood has an
// unknown outcome, and so has, if the store was damaged, one that was free, because a
// later attempt may be what was lost.
func (w *wreck) rebuildWrites(report *SalvageReport) (groups [][]entry, err error) {
	for key, v := range w.newest {
		if !strings.HasPrefix(key, string(rune(prefixWrite))) || v.value == nil {
			continue
		}
		place := []byte(key[1:])
		if _, _, err := nameAt(place); err != nil {
			report.Dropped++
			continue
		}
		record, reply, sound := w.foundWrite(place, v)
		free := record.State == tokens.WriteDeclined || record.State == tokens.WriteNotSent
		if !sound || free && w.damaged {
			record.State, record.Expires = tokens.WriteUnknown, 0
			report.Blocked++
		}
		b, err := tokens.EncodeWrite(record)
		if err != nil {
			return nil, err
		}
		var p pendingWrites
		m := markOf(record)
		m.reply = reply != nil
		p.replace(nil, mark{}, &encodedWrite{place: place, record: b, body: reply, mark: m})
		groups = append(groups, p.entries)
		report.Writes++
	}
	return groups, nil
}

// foundWrite reads a write and its reply, which counts only if it was written together
// with the write. It is not sound if the record makes no sense.
func (w *wreck) foundWrite(place []byte, v version) (record tokens.WriteRecord, reply []byte, sound bool) {
	m, b, err := decodeMark(v.value)
	if err == nil {
		record, err = tokens.DecodeWrite(b)
	}
	if err != nil {
		return tokens.WriteRecord{Attempt: salvagedAttempt}, nil, false
	}
	if m.reply {
		if r := w.newest[string(under(prefixReply, place))]; r.sequence == v.sequence && r.value != nil {
			if _, err := tokens.DecodeReply(r.value); err == nil {
				return record, r.value, true
			}
		}
	}
	record.HasReply = false
	return record, nil, true
}
