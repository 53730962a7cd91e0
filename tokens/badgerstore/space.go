package badgerstore

import "fmt"

// watchSpace refuses commits in time: on a full disk Badger would die of SIGBUS.
func (s *Store) watchSpace() error {
	n, err := s.seams.free(s.opt.Dir)
	if err == nil && n < s.opt.MinFree {
		err = fmt.Errorf("%w: %d bytes on the file system of %s, %d are needed", ErrNoSpace, n, s.opt.Dir, s.opt.MinFree)
	}
	was := s.full.Load() != nil
	switch {
	case err != nil && !was:
		s.opt.Logger.Error("store refuses writes", "error", err)
	case err == nil && was:
		s.opt.Logger.Info("store takes writes again")
	}
	if err == nil {
		s.full.Store(nil)
		return nil
	}
	s.full.Store(&err)
	return err
}
