package tokens

// Remembered counts the jobs in memory.
func (a *Authority) Remembered() (n int) {
	for i := range a.shards {
		a.shards[i].mu.Lock()
		n += len(a.shards[i].jobs)
		a.shards[i].mu.Unlock()
	}
	return n
}
