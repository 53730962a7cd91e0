package tokenstest

import (
	"cmp"
	"context"
	"slices"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// writeName is a keyed write's place.
type writeName struct {
	job tokens.Job
	key string
}

// writeRow is a keyed write as it is stored; encoded is nil for one that is purged.
type writeRow struct{ encoded, reply []byte }

func encodeWrites(c tokens.Change) (map[writeName]writeRow, error) {
	out := make(map[writeName]writeRow, len(c.Writes))
	for _, w := range c.Writes {
		var r writeRow
		var err error
		if !w.Purge {
			if r.encoded, err = tokens.EncodeWrite(w.Record); err != nil {
				return nil, err
			}
			if w.Record.Reply != nil {
				if r.reply, err = tokens.EncodeReply(w.Record.Reply); err != nil {
					return nil, err
				}
			}
		}
		out[writeName{c.Job, w.Key}] = r
	}
	return out, nil
}

// LoadWrite implements tokens.Store.
func (m *Memory) LoadWrite(ctx context.Context, job tokens.Job, key string) (tokens.WriteRecord, error) {
	if ctx.Err() != nil {
		return tokens.WriteRecord{}, context.Cause(ctx)
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if m.gone.Load() {
		return tokens.WriteRecord{}, errClosed
	}
	r, ok := m.disk.writes[writeName{job, key}]
	if !ok {
		return tokens.WriteRecord{}, nil
	}
	w, err := tokens.DecodeWrite(r.encoded)
	if err == nil && r.reply != nil {
		w.Reply, err = tokens.DecodeReply(r.reply)
	}
	return w, err
}

// ListWrites implements tokens.Store.
func (m *Memory) ListWrites(ctx context.Context, q tokens.WritesQuery) ([]tokens.ListedWrite, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if m.gone.Load() {
		return nil, errClosed
	}
	var out []tokens.ListedWrite
	for name, r := range m.disk.writes {
		w, err := tokens.DecodeWrite(r.encoded)
		if err != nil {
			return nil, err
		}
		l := tokens.ListedWrite{Job: name.job, Key: name.key, Record: w}
		switch {
		case q.Job != tokens.Job{} && q.Job != name.job,
			q.Open && !w.IsOpen(),
			q.ExpiredAt != 0 && (w.Expires == 0 || w.Expires > q.ExpiredAt),
			q.After.Key != "" && byPlace(q, l, q.After) <= 0:
		default:
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b tokens.ListedWrite) int { return byPlace(q, a, b) })
	return out[:min(len(out), max(0, q.Limit))], nil
}

// byPlace is the order of a list: of expiry, if that is what is asked for, then of job
// and key.
func byPlace(q tokens.WritesQuery, a, b tokens.ListedWrite) int {
	if q.ExpiredAt != 0 {
		if d := cmp.Compare(a.Record.Expires, b.Record.Expires); d != 0 {
			return d
		}
	}
	return cmp.Or(cmp.Compare(a.Job.Namespace, b.Job.Namespace), cmp.Compare(a.Job.ID, b.Job.ID), cmp.Compare(a.Key, b.Key))
}
