// This file is in no build of fenceproxy. The black box tests add it to the lease client of their worker, by an overlay,
// and put its function in the place of the wall clock:
//
//	WRONG_WALL   by how much the wall clock is off, as a duration
//	WRONG_DRIFT  how much faster it runs than it should, as a fraction: 0.1 is a tenth faster, -0.1 slower
//	WRONG_FILE   a file with a duration in it by which the clock is off as well, read each time; it may be missing

package leaseclient

import (
	"os"
	"strconv"
	"strings"
	"time"
)

var wrongStart = time.Now()

func wrongWall(now time.Time) time.Time {
	wall := now.Round(0)
	if by, err := time.ParseDuration(os.Getenv("WRONG_WALL")); err == nil {
		wall = wall.Add(by)
	}
	if drift, err := strconv.ParseFloat(os.Getenv("WRONG_DRIFT"), 64); err == nil {
		wall = wall.Add(time.Duration(float64(now.Sub(wrongStart)) * drift))
	}
	if text, err := os.ReadFile(os.Getenv("WRONG_FILE")); err == nil {
		if by, err := time.ParseDuration(strings.TrimSpace(string(text))); err == nil {
			wall = wall.Add(by)
		}
	}
	return wall
}
